# In the guest: NFS v3 with locks, as two clients: the second has a network of its own, with its own lock manager. It has a view of
# the files of its own, too: the kernel registers a lock manager with the rpcbind whose socket the mounting program sees, and
# with one /run for both the second's would take the place of the first's, which then never hears of a restart.
version=$(uname -r)
for module in lockd nfsv3 nfs macvlan; do modprobe -d /tmp/modules -S "$version" "$module"; done
mkdir -p /mnt/near /mnt/far
result() { if [ "$2" = 0 ]; then echo "ok   $1"; else echo "FAIL $1"; fi; }

# The programs that a client's locks need, as its system starts them.
cat >/tmp/programs.sh <<'END'
mount -t tmpfs memory /run
mount -t tmpfs memory /var/lib/nfs
mkdir -p /run/rpcbind /run/lock /var/lib/nfs/sm /var/lib/nfs/sm.bak
echo -n >/var/lib/nfs/rmtab
rpcbind && rpc.statd --no-notify
END
hostname one
bash /tmp/programs.sh || exit 1
# Mounts below /mnt are seen by both.
mount --bind /mnt /mnt && mount --make-shared /mnt
unshare --net --uts --mount --propagation unchanged sleep infinity &
second=$!
sleep 1
two() { nsenter --target $second --net --uts --mount --root --wd "$@"; }
ip link add link eth0 name far type macvlan mode bridge
ip link set far netns $second
two ip link set lo up
two ip addr add 10.77.0.16/24 dev far
two ip link set far up
two hostname two
two bash /tmp/programs.sh || exit 1

# With the usual ports nothing has to be said.
mount.nfs "$SERVER:/files" /mnt/near -o vers=3 || exit 1
two mount.nfs "$SERVER:/files" /mnt/far -o vers=3,nosharecache || exit 1
grep -E ' /mnt/(near|far) ' /proc/mounts
mkdir /mnt/near/locks
timeout 600 /usr/bin/python3 /tmp/scripts/locks.py locks /mnt/near/locks /mnt/far/locks
result "locks and a database of two clients" $?
rm -rf /mnt/near/locks

# The server dies under locked files, and comes back.
mkdir /mnt/near/crash
/usr/bin/python3 /tmp/scripts/locks.py hold /mnt/near/crash/held &
holder=$!
until [ -s /mnt/near/crash/held ]; do sleep 0.2; done
echo "crash begins"
written=0
for n in $(seq 60); do echo "$n" | dd of=/mnt/near/crash/small$n conv=fsync status=none || written=1; sleep 0.5; done
result "files written while the server is killed" $written
timeout 300 /usr/bin/python3 /tmp/scripts/locks.py held /mnt/far/crash/held $holder
result "a lock over the crashes" $?
wait $holder

# A client that has crashed says so when it is back, and what it had is free.
/usr/bin/python3 /tmp/scripts/locks.py hold /mnt/near/crash/lost &
holder=$!
until [ -s /mnt/near/crash/lost ]; do sleep 0.2; done
ls /var/lib/nfs/sm
timeout 10 flock --exclusive --nonblock /mnt/far/crash/lost true && echo "FAIL a lock that the other client has"
timeout 60 sm-notify -f
for n in $(seq 60); do flock --exclusive --nonblock /mnt/far/crash/lost true && break; sleep 1; done
result "the locks of a client that has restarted are free" $?
kill $holder; wait $holder
rm -rf /mnt/near/crash
two umount /mnt/far && umount /mnt/near
result "umount" $?
