# In the guest: NFS v4.2 and v4.1, which are two clients to the server.
version=$(uname -r)
for module in nfsv4 nfs; do modprobe -d /tmp/modules -S "$version" "$module"; done
mkdir -p /mnt/near /mnt/far
options=port=$NFS_PORT,proto=tcp,sec=sys
mount.nfs $SERVER:/files /mnt/near -o "vers=4.2,nconnect=4,$options" || exit 1
result() { if [ "$2" = 0 ]; then echo "ok   $1"; else echo "FAIL $1"; fi; }
bash /tmp/scripts/work.sh /mnt/near

mkdir /mnt/near/locks
mount.nfs $SERVER:/files/locks /mnt/far -o "vers=4.1,$options" || exit 1
/usr/bin/python3 /tmp/scripts/locks.py /mnt/near/locks /mnt/far
result "locks and a database of two clients" $?
cp --sparse=always /mnt/near/locks/sparse /mnt/near/locks/copied && cmp /mnt/near/locks/sparse /mnt/far/copied
result "holes" $?

/usr/bin/python3 /tmp/scripts/views.py /mnt/near /mnt/far
result "delegations, lists, snapshots" $?

# Version 4.0 is a client of its own; each version against a copy in memory.
mkdir -p /mnt/old
mount.nfs 10.0.2.2:/files /mnt/old -o "vers=4.0,$options" || exit 1
bash /tmp/scripts/work.sh /mnt/old
mkdir -p /mnt/near/fsx
for mount in near far old; do
  folder=/mnt/$mount/fsx
  [ $mount = far ] && folder=/mnt/far && mkdir -p /mnt/near/locks
  /usr/bin/python3 /tmp/scripts/fsx.py $folder/fsx-$mount 1500 $RANDOM
  result "random operations on $mount" $?
done
rm -rf /mnt/near/fsx
umount /mnt/old
rm -rf /mnt/near/locks

# The server dies under open and locked files, and comes back.
dd if=/dev/urandom of=/tmp/copied bs=1M count=100 status=none
mkdir /mnt/near/crash
/usr/bin/python3 /tmp/scripts/locks.py hold /mnt/near/crash/held &
holder=$!
until [ -s /mnt/near/crash/held ]; do sleep 0.2; done
echo "crash begins"
written=0
for n in 1 2 3 4; do
  dd if=/tmp/copied of=/mnt/near/crash/large$n bs=1M conv=fsync status=none || written=1
  for small in $(seq 50); do echo "$n $small" | dd of=/mnt/near/crash/small$n-$small conv=fsync status=none || written=1; done
done
result "a copy while the server is killed" $written
/usr/bin/python3 /tmp/scripts/locks.py held /mnt/near/crash/held $holder
result "a lock over the crashes" $?
wait $holder
echo 3 >/proc/sys/vm/drop_caches
whole=0
for n in 1 2 3 4; do
  cmp /tmp/copied /mnt/near/crash/large$n || whole=1
  for small in $(seq 50); do [ "$(cat /mnt/near/crash/small$n-$small)" = "$n $small" ] || whole=1; done
done
[ "$(ls /mnt/near/crash | wc -l)" = 205 ] || whole=1
result "it is whole" $whole
rm -rf /mnt/near/crash
umount /mnt/far && umount /mnt/near
result "umount" $?
