"""Disks, devices, and filling them up."""

from __future__ import annotations

from ralph.guard import effects
from ralph.guard.model import Command, Place, Rule

CATEGORY = "disks"
_ENDLESS = ("/dev/zero", "/dev/urandom", "/dev/random", "/dev/full")


def _fills(command: Command, place: Place) -> bool:
    """An endless source, a file to write, and nothing that ends it."""
    if command.program == "dd":
        given = [word.partition("=")[2] for word in command.args if word.startswith("if=")]
        is_bounded = any(word.startswith("count=") for word in command.args)
        target = [word for word in command.args if word.startswith("of=") and word != "of=/dev/null"]
        return not is_bounded and bool(target) and any(name in _ENDLESS for name in given)
    targets = [target for operator, target in command.redirects if ">" in operator and target != "/dev/null"]
    if not [target for target in targets if not target.isdigit()] or command.piped:
        return False
    if command.program == "cat":
        return any(word in _ENDLESS for word in effects.operands(command))
    return command.program == "yes" and not command.upstream


_DISK = "It changes disks or file systems. Leave them to the user; work with files inside the project."

RULES = (
    Rule("fill-disk", CATEGORY, "It writes without end. Say how much: `head -c`, or `count=` of dd.", _fills),
    Rule(
        "disks",
        CATEGORY,
        _DISK,
        (
            "mkfs|mkfs.ext2|mkfs.ext3|mkfs.ext4|mkfs.xfs|mkfs.btrfs|mkfs.vfat|mkfs.fat|mkfs.ntfs|mkfs.f2fs|mke2fs|mkswap|newfs"
            "|mkntfs|mkdosfs|mkfs.exfat|mkfs.minix|zpool|zfs",
            "sfdisk|cfdisk|gdisk|sgdisk|cgdisk|wipefs|blkdiscard|badblocks|hdparm|partprobe|tune2fs|resize2fs|e2fsck|fsck"
            "|kpartx|sg_format|nvme",
            "fdisk|parted !-l|--list",
            "lvremove|vgremove|pvremove|lvcreate|vgcreate|pvcreate|lvreduce|mdadm|cryptsetup|dmsetup|swapoff|swapon|losetup"
            "|umount|pivot_root|fusermount|blockdev|lvresize",
            "mount ~*",
            "mount -a|-o|--bind|-t",
            "diskutil erase*|partition*|unmount*|zero*|secureErase|reformat|apfs",
            "asr restore",
            "grub-install|efibootmgr|update-grub|flashrom|fwupdmgr|bootctl|dracut|update-initramfs",
        ),
    ),
)
