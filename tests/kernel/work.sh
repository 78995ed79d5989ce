# Work on a mounted share as people do it: bash work.sh FOLDER. Prints ok or FAIL for each.
set -u
here=$1/work-$$ tree=/usr/include/asm-generic
mkdir -p "$here" && cd "$here" || exit 1
result() { if [ "$2" = 0 ]; then echo "ok   $1"; else echo "FAIL $1"; fi; }

git init -q /tmp/origin-$$ && cp -r /usr/include/asm-generic /usr/include/rpc* /tmp/origin-$$/ 2>/dev/null
(cd /tmp/origin-$$ && git add -A && git -c user.name=x -c user.email=x@y commit -qm first)
git clone -q --no-hardlinks /tmp/origin-$$ clone
result "git clone" $?
(cd clone && git fsck --full >/dev/null 2>&1 && [ -z "$(git status --short)" ])
result "git fsck, git status" $?
mkdir tar && tar cf - -C $tree . | tar xf - -C tar && diff -r $tree tar
result "tar, diff -r" $?
rsync -rlt --checksum $tree/ rsync/ && [ -z "$(rsync -rltn --checksum --itemize-changes $tree/ rsync/ | grep -v '^\.d')" ]
result "rsync" $?
dd if=/dev/urandom of=/tmp/large bs=1M count=100 status=none
dd if=/tmp/large of=large bs=1M conv=fsync status=none && echo 3 >/proc/sys/vm/drop_caches && cmp /tmp/large large
result "100 MiB there and back" $?
/usr/bin/python3 /tmp/scripts/work.py
result "small files, open files, mappings, names" $?
cd / && rm -rf "$here"
result "rm -rf" $?
