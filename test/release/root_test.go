package release

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/built"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// root is a minimal Debian system in a directory, created by mmdebstrap from this machine's package sources. It has
// neither Go nor Fairlead.
type root struct{ dir string }

// packages are installed in addition to Debian's minimal set: the prerequisites of the tutorials.
const packages = "iproute2,nftables,containerd,runc,jq"

// newRoot unpacks a fresh root.
func newRoot(t *testing.T) *root {
	t.Helper()
	r := &root{t.TempDir()}
	kerneltest.Run(t, "tar", "--extract", "--numeric-owner", "--file", debian(t), "--directory", r.dir)
	r.put(t, "/etc/apt/apt.conf.d/99answer", []byte("APT::Get::Assume-Yes \"true\";\n")) // apt must not ask for confirmation
	return r
}

// debian returns an archive of a minimal Debian 12. It is built once and kept in the user's cache directory.
func debian(t *testing.T) string {
	t.Helper()
	path, err := built.Program("debian-12-2", "root.tar", func(temp string) *exec.Cmd {
		return exec.Command("mmdebstrap", "--quiet", "--variant=minbase", "--include="+packages, "bookworm", filepath.Join(temp, "root.tar"))
	})
	must(t, err)
	return path
}

// sh runs a script as user root in the root directory, in its own namespaces, and returns its output. All processes
// of the script end with it.
func (r *root) sh(t *testing.T, script string) string {
	t.Helper()
	const enter = `set -eu
mount --bind "$1" "$1"
cd "$1"
mkdir -p old
mount -t proc proc proc
mount --rbind /sys sys
pivot_root . old
exec chroot . /bin/bash -c 'umount -l /old; rmdir /old; exec /bin/bash /files/script'`
	const prepare = `set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
for node in null:3 zero:5 full:7 random:8 urandom:9; do
	[ -c /dev/${node%:*} ] || mknod -m 666 /dev/${node%:*} c 1 ${node#*:}
done
ip link set lo up
ip link add up0 type veth peer name up1
ip addr add 198.51.100.2/24 dev up0
ip link set up0 up
ip link set up1 up
ip route add default via 198.51.100.1
sudo() { "$@"; }
systemctl() { echo "no systemd here: systemctl $*"; }
`
	cmd := exec.Command("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c", enter, "sh", r.dir)
	// ctr leaves its parent cgroup behind. rmdir removes it unless something else uses it.
	const tidy = "\nrmdir /sys/fs/cgroup/default /sys/fs/cgroup/*/default 2>/dev/null || true\n"
	r.put(t, "/files/script", []byte(prepare+script+tidy))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\nthe script was\n%s", err, out, script)
	}
	return string(out)
}

// put writes a file into the root.
func (r *root) put(t *testing.T, path string, data []byte) {
	t.Helper()
	file := filepath.Join(r.dir, path)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, data, 0o755))
}

// files lists every file and link of the root with its mode, and its size or target. It omits directories, which other
// software may use; logs, caches and dpkg's lists, which every package installation changes; containerd's data; and
// /var/lib/cni, where state stays by design (docs/install.md).
func (r *root) files(t *testing.T) (out []string) {
	t.Helper()
	ignored := []string{
		"/proc", "/sys", "/run", "/tmp", "/dev", "/var/log", "/var/cache", "/var/lib/dpkg", "/var/lib/apt", "/var/lib/systemd",
		"/var/lib/containerd", "/var/lib/cni", "/root/.", "/etc/ld.so.cache", "/files", "/opt/containerd",
	}
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, r.dir)
		if slices.ContainsFunc(ignored, func(p string) bool {
			return name == p || strings.HasPrefix(name, p+"/") || strings.HasSuffix(p, ".") && strings.HasPrefix(name, p)
		}) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v", name, info.Mode())
		switch {
		case info.Mode().IsRegular():
			line += fmt.Sprint(" ", info.Size())
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			line += " -> " + target
		}
		out = append(out, line)
		return nil
	})
	must(t, err)
	if len(out) < 1000 {
		t.Fatalf("the root has only %d files", len(out))
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
