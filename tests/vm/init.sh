#!/bin/busybox sh
# First process of the guest: loads modules, then runs the tests from the disk.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mkdir -p /sbin
for m in @MODULES@; do
        /bin/busybox modprobe "$m" || echo "VM: no module $m"
done
i=0
while ! [ -b /dev/vda ] && [ $i -lt 100 ]; do /bin/busybox sleep 0.1; i=$((i + 1)); done
/bin/busybox mount -t ext4 /dev/vda /root || echo "VM: the disk cannot be mounted"
for d in proc sys dev; do /bin/busybox mount --move /$d /root/$d; done
exec /bin/busybox switch_root /root /usr/bin/guest
