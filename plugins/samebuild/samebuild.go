// Package samebuild finds out whether a program on CNI_PATH has the same plugins as the running program, so that they can
// run in process. It compares build information, never names.
package samebuild

import (
	"debug/buildinfo"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Module is the module path in this project's build information.
const Module = "github.com/fairlead/fairlead"

// Programs remembers the programs it has compared, until they change.
type Programs struct {
	mu    sync.Mutex
	known map[string]result
}

type result struct {
	file os.FileInfo
	same bool
}

// Same reports whether a file was built from the same version as this program. A version that does not identify one
// state of the source (an unknown one, or a modified tree) counts only in this program's directory, where both were
// installed together.
func (p *Programs) Same(file string, fi fs.FileInfo) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.known[file]; ok && os.SameFile(l.file, fi) && l.file.ModTime().Equal(fi.ModTime()) && l.file.Size() == fi.Size() {
		return l.same
	}
	if p.known == nil {
		p.known = map[string]result{}
	}
	same := compare(file)
	if time.Since(fi.ModTime()) > time.Second { // not one that is still being written
		p.known[file] = result{fi, same}
	}
	return same
}

func compare(file string) bool {
	other, err := buildinfo.ReadFile(file)
	if err != nil || other.Main.Path != Module {
		return false
	}
	own, ok := debug.ReadBuildInfo()
	if !ok || other.Main.Version != version(own) {
		return false
	}
	return definite(other.Main.Version) || sameDir(file)
}

// version returns the version of this project's packages in a program.
func version(info *debug.BuildInfo) string {
	if info.Main.Path == Module {
		return info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == Module && d.Replace == nil {
			return d.Version
		}
	}
	return "none"
}

// definite reports whether a version identifies one state of the source.
func definite(version string) bool {
	return version != "" && version != "(devel)" && !strings.Contains(version, "+dirty")
}

// sameDir reports whether a file is in this program's directory, after following symlinks.
func sameDir(file string) bool {
	self, err1 := filepath.EvalSymlinks("/proc/self/exe")
	other, err2 := filepath.EvalSymlinks(file)
	return err1 == nil && err2 == nil && filepath.Dir(self) == filepath.Dir(other)
}
