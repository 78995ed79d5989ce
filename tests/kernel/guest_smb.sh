# In the guest: SMB, by version and with encryption.
version=$(uname -r)
for module in cifs gcm ccm cmac sha512 sha256 hmac aes md5 nls_utf8; do modprobe -q -d /tmp/modules -S "$version" "$module"; done
mkdir -p /mnt/share
for dialect in 3.1.1 3.1.1,seal 3.0,seal 2.1; do
  echo "== vers=$dialect"
  mount.cifs //$SERVER/files /mnt/share -o "port=$SMB_PORT,username=keeper,password=Pantry-Shelf-42,vers=$dialect,mfsymlinks,uid=0,gid=0" || {
    echo "FAIL mount"
    continue
  }
  bash /tmp/scripts/work.sh /mnt/share
  # A second client of the same guest: its connection, and so its leases, are its own.
  mkdir -p /mnt/other /mnt/share/stress
  mount.cifs //$SERVER/files /mnt/other -o "port=$SMB_PORT,username=keeper,password=Pantry-Shelf-42,vers=$dialect,mfsymlinks,uid=0,gid=0,nosharesock" || {
    echo "FAIL second mount"
    continue
  }
  # A client that hangs is left alone: its mounts cannot be ended.
  hangs= seeds=1
  case $dialect in 3.1.1,seal) seeds=3 ;; esac
  for seed in $(seq "$seeds"); do
    /usr/bin/python3 /tmp/scripts/stress.py /mnt/share/stress /mnt/other/stress 150 "$seed" || { hangs=$seed; break; }
  done
  if [ -n "$hangs" ]; then
    echo "FAIL two clients rename and replace what the other caches, seed $hangs"
    continue
  fi
  echo "ok   two clients rename and replace what the other caches"
  rm -rf /mnt/share/stress
  umount /mnt/other || echo "FAIL umount of the second"
  umount /mnt/share || echo "FAIL umount"
done
true
