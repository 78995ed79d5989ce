# In the guest: NFS v3.
version=$(uname -r)
for module in nfsv3 nfs; do modprobe -d /tmp/modules -S "$version" "$module"; done
mkdir -p /mnt/near /mnt/far
options=vers=3,proto=tcp,port=$NFS_PORT,mountport=$NFS_PORT,mountproto=tcp,nolock
mount.nfs $SERVER:/files /mnt/near -o "$options" || exit 1
bash /tmp/scripts/work.sh /mnt/near

result() { if [ "$2" = 0 ]; then echo "ok   $1"; else echo "FAIL $1"; fi; }
dd if=/dev/urandom of=/tmp/copied bs=1M count=100 status=none
mkdir /mnt/near/crash
echo "crash begins"
written=0
for n in 1 2 3 4; do
  dd if=/tmp/copied of=/mnt/near/crash/large$n bs=1M conv=fsync status=none || written=1
  for small in $(seq 100); do echo "$n $small" | dd of=/mnt/near/crash/small$n-$small conv=fsync status=none || written=1; done
done
result "a copy while the server is killed" $written
echo 3 >/proc/sys/vm/drop_caches
whole=0
for n in 1 2 3 4; do
  cmp /tmp/copied /mnt/near/crash/large$n || whole=1
  for small in $(seq 100); do [ "$(cat /mnt/near/crash/small$n-$small)" = "$n $small" ] || whole=1; done
done
[ "$(ls /mnt/near/crash | wc -l)" = 404 ] || whole=1
result "it is whole" $whole
rm -rf /mnt/near/crash

# What another client has changed is seen when a file is opened.
mount.nfs $SERVER:/files /mnt/far -o "$options,nosharecache" || exit 1
echo one >/mnt/near/shared
[ "$(cat /mnt/far/shared)" = one ] && echo two >/mnt/far/shared && [ "$(cat /mnt/near/shared)" = two ]
result "close to open" $?
rm /mnt/near/shared
umount /mnt/far && umount /mnt/near
result "umount" $?
