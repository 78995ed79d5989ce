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
  umount /mnt/share || echo "FAIL umount"
done
true
