package kernel

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// programRoot is the directory that is the root of iptables and nft; "": the root of this process.
var programRoot string

// UseProgramsBelow sets the directory that is the root of the commands that this package runs, iptables and nft. Call it
// before anything else of this package. A container without these programs needs it, and a mount of the host's root. Commands
// then need CAP_SYS_CHROOT.
func UseProgramsBelow(root string) { programRoot = root }

// FindProgram returns the path of a program, below the directory of UseProgramsBelow. The error is exec.ErrNotFound if there
// is none in PATH.
func FindProgram(name string) (string, error) {
	if programRoot == "" {
		return exec.LookPath(name)
	}
	return findBelow(programRoot, name)
}

// findBelow searches PATH below a directory. It does not follow links: an absolute one begins at that directory.
func findBelow(root, name string) (string, error) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join("/", dir, name)
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			return path, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// followLinks returns the path of a file to which a link below a directory leads.
func followLinks(root, path string) string {
	for range 10 { // more is a loop
		to, err := os.Readlink(filepath.Join(root, path))
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return path
}
