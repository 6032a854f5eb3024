#!/bin/sh
# The first process of a machine made of namespaces: an overlay of this system's root, a real systemd as process 1.
# Called by systemd_systemd_machine.py with the folder to build in and the accounts' home of the test; nothing of it outlives the namespaces.
set -eu
build=$1
mount --make-rprivate /
mount -t tmpfs -o size=1g,mode=755 machine "$build"
mkdir "$build/upper" "$build/work" "$build/root"
mount -t overlay -o lowerdir=/,upperdir="$build/upper",workdir="$build/work" machine "$build/root"
cd "$build/root"

mount -t proc proc proc
# systemd raises limits of the kernel at boot, and those are the host's: read-only until it has booted.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do
  : > "dev/$name"
  mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd

# Nothing of what this system would start: the bus, the journal and logins, which the tests need, and no more.
units=lib/systemd/system
rm -rf etc/systemd/system etc/systemd/user var/lib/systemd/linger
mkdir -p etc/systemd/system
for name in sysinit local-fs timers basic multi-user graphical getty; do rm -rf "$units/$name.target.wants"; done
for path in $units/sockets.target.wants/* usr/lib/systemd/user/sockets.target.wants/*; do
  case $path in *journald*|*dbus*) ;; *) rm -f "$path" ;; esac
done
cat > etc/systemd/system/machine.target <<END
[Unit]
Description=All there is on this machine
Requires=dbus.socket systemd-journald.socket
Wants=systemd-journald.service systemd-logind.service
END
ln -s machine.target etc/systemd/system/default.target
: > etc/fstab
rm -rf var/log/journal
echo 5f3c1d9e0b7a4c62a1d8e94f6b2c7a10 > etc/machine-id
pivot_root . mnt
# Shared, as on a real machine: credentials are mounted by a process of systemd's own, and must be seen by the service.
exec env -i container=test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
  sh -c 'umount -l /mnt; mount --make-rshared /; exec /lib/systemd/systemd --system --log-target=journal --log-level=info --show-status=no'
