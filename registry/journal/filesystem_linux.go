package journal

import "syscall"

// networkFileSystem returns the name of the network file system that dir is on, "" if it is on none that is known.
func networkFileSystem(dir string) string {
	var stat syscall.Statfs_t
	if syscall.Statfs(dir, &stat) != nil {
		return ""
	}
	return networkFileSystemOf(uint32(stat.Type))
}

// networkFileSystemOf knows the magic numbers of statfs(2). FUSE may be a local disk, but is what sshfs, s3fs, gcsfuse and virtiofs are too.
func networkFileSystemOf(magic uint32) string {
	switch magic {
	case 0x6969:
		return "nfs"
	case 0x517b, 0xfe534d42, 0xff534d42:
		return "smb"
	case 0x01021997:
		return "9p"
	case 0x65735546:
		return "fuse"
	case 0x00c36400:
		return "ceph"
	case 0x5346414f, 0x6b414653:
		return "afs"
	case 0x0bd00bd0:
		return "lustre"
	case 0x47504653:
		return "gpfs"
	case 0x01161970:
		return "gfs2"
	case 0x7461636f:
		return "ocfs2"
	case 0x786f4256:
		return "vboxsf"
	case 0xbacbacbc:
		return "vmhgfs"
	default:
		return ""
	}
}
