package podnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/libcni"
)

// configuration is the content of the configuration directories. It may hold older versions of unreadable files.
type configuration struct {
	dirs    []string
	chosen  string // name of the default network; "": the first
	loading sync.Mutex

	mu        sync.Mutex
	files     []confFile // in order
	problems  []Problem  // of the directories
	unwatched error      // why changes are not reported
}

// confFile is a file and the last network that was read from it.
type confFile struct {
	path string
	list *libcni.NetworkConfigList // nil: it was never readable
	err  error                     // why the current file cannot be used
}

// Problem is an error in the configuration.
type Problem struct {
	Path string `json:"path"`
	Err  error  `json:"-"`
	// Kept reports that an older, readable version of the file is in use.
	Kept bool `json:"kept"`
}

func (p Problem) Error() string {
	if p.Kept {
		return p.Err.Error() + " (its last good state is used)"
	}
	return p.Err.Error()
}

// Unwrap returns the error.
func (p Problem) Unwrap() error { return p.Err }

// load reads the directories again and reports whether anything changed. A file that exists but became unreadable keeps
// its last content. A removed file is dropped.
func (c *configuration) load() (changed bool) {
	c.loading.Lock() // a slow disk must not block readers
	defer c.loading.Unlock()
	before := c.snapshot()
	var files []confFile
	var problems []Problem
	for _, dir := range c.dirs {
		paths, err := libcni.ConfFiles(dir, []string{".conflist", ".conf", ".json"})
		switch {
		case errors.Is(err, syscall.ENOTDIR):
			problems = append(problems, Problem{dir, err, false})
		case err != nil:
			old := slices.Collect(filesIn(before, dir))
			files = append(files, old...)
			problems = append(problems, Problem{dir, err, len(old) > 0})
			continue
		case len(paths) == 0 && !exists(dir):
			problems = append(problems, Problem{dir, fmt.Errorf("%s: %w: put a network's configuration there", dir, fs.ErrNotExist), false})
		}
		for _, path := range paths {
			files = append(files, reread(path, before))
		}
	}
	refuseDoubles(files)
	c.mu.Lock()
	defer c.mu.Unlock()
	changed = !slices.EqualFunc(c.files, files, confFile.same) || !slices.EqualFunc(c.problems, problems, func(a, b Problem) bool { return a.Path == b.Path && a.Err.Error() == b.Err.Error() })
	c.files, c.problems = files, problems
	return changed
}

func (c *configuration) snapshot() []confFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.files
}

func filesIn(files []confFile, dir string) func(func(confFile) bool) {
	return func(yield func(confFile) bool) {
		for _, f := range files {
			if filepath.Dir(f.path) == dir && !yield(f) {
				return
			}
		}
	}
}

// reread reads a file. If that fails, it keeps the previous content.
func reread(path string, before []confFile) confFile {
	f := confFile{path: path}
	list, err := readNetwork(path)
	if err == nil {
		f.list = list
		return f
	}
	f.err = err
	if errors.Is(err, fs.ErrNotExist) && !exists(path) { // removed in the meantime, or a dangling link
		return f
	}
	if i := slices.IndexFunc(before, func(b confFile) bool { return b.path == path }); i >= 0 {
		f.list = before[i].list
	}
	return f
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func readNetwork(path string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(path) == ".conflist" {
		return libcni.ConfListFromFile(path)
	}
	conf, err := libcni.ConfFromFile(path)
	if err != nil {
		if raw, err2 := os.ReadFile(path); err2 == nil {
			if _, list := rawjson.Find(raw, "plugins"); list {
				return nil, fmt.Errorf("%w: it has the key plugins: is it a list? Then its name must end in .conflist", err)
			}
		}
		return nil, err
	}
	if err := cni.ValidateNetworkName(conf.Network.Name); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return libcni.ConfListFromConf(conf)
}

// refuseDoubles keeps only the first of several files with the same network.
func refuseDoubles(files []confFile) {
	first := map[string]string{}
	for i, f := range files {
		switch {
		case f.list == nil:
		case first[f.list.Name] == "":
			first[f.list.Name] = f.path
		default:
			err := fmt.Errorf("%s: ignored, because %s defines network %s, too", f.path, first[f.list.Name], f.list.Name)
			files[i].list, files[i].err = nil, errors.Join(f.err, err)
		}
	}
}

// failedName returns the name of a list that cannot be used, if its file has one, or "".
func (f confFile) failedName() string {
	if f.err == nil {
		return ""
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return ""
	}
	conf, err := rawjson.ParseObject(raw)
	if err != nil || cni.ValidateNetworkName(conf.String("name")) != nil {
		return ""
	}
	return conf.String("name")
}

func (f confFile) same(o confFile) bool {
	return f.path == o.path && text(f.err) == text(o.err) && (f.list == nil) == (o.list == nil) &&
		(f.list == nil || sameList(f.list, o.list))
}

// sameList also compares the plugins, which may come from separate files.
func sameList(a, b *libcni.NetworkConfigList) bool {
	return string(a.Bytes) == string(b.Bytes) && slices.EqualFunc(a.Plugins, b.Plugins, func(a, b *libcni.NetworkConfig) bool { return string(a.Bytes) == string(b.Bytes) })
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// find returns a network by name; "" is the default network. The error includes the problems of the files, because one
// of them may contain the network.
func (c *configuration) find(name string) (*libcni.NetworkConfigList, error) {
	if name == "" {
		name = c.chosen
	}
	files := c.snapshot()
	for _, f := range files {
		if f.list != nil && (name == "" || f.list.Name == name) {
			return f.list, nil
		}
	}
	var err error = libcni.NotFoundError{Dir: strings.Join(c.dirs, ", "), Name: name}
	if name == "" || len(files) == 0 {
		err = libcni.NoConfigsFoundError{Dir: strings.Join(c.dirs, ", ")}
	}
	for _, p := range c.all() {
		if !errors.Is(p.Err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; %w", err, p)
		}
	}
	return nil, err
}

// all returns the problems of directories and files.
func (c *configuration) all() []Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Clone(c.problems)
	if c.unwatched != nil {
		out = append(out, Problem{c.dirs[0], fmt.Errorf("the directories are read every %v, because they cannot be watched: %w", pollTime, c.unwatched), false})
	}
	for _, f := range c.files {
		if f.err != nil {
			out = append(out, Problem{f.path, f.err, f.list != nil})
		}
	}
	return out
}

// networks returns the usable networks, the default one first.
func (c *configuration) networks() (out []confFile) {
	for _, f := range c.snapshot() {
		switch {
		case f.list == nil:
		case f.list.Name == c.chosen:
			out = slices.Insert(out, 0, f)
		default:
			out = append(out, f)
		}
	}
	return out
}
