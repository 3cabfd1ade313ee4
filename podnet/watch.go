package podnet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settleTime is the time without changes after which the directories are read. Files are written in pieces, and
	// directories are filled file by file.
	settleTime = 20 * time.Millisecond
	// settleLimit limits that wait.
	settleLimit = 500 * time.Millisecond
	// pollTime is the polling interval without change events, for example if the host has no inotify instances left.
	// pollAnyway is the interval with events, because a network file system reports only this host's own changes.
	pollTime, pollAnyway = 2 * time.Second, time.Minute
	// rounds limits the repetitions after concurrent changes. The next event triggers the rest.
	rounds = 10
)

// Watch keeps the Manager up to date with its directories until the context ends, and returns the context's cause. It
// calls changed, if not nil, after each read that found a change. A directory may be created, removed or replaced
// later. It may be a symbolic link or contain some, as a Kubernetes ConfigMap does.
func (m *Manager) Watch(ctx context.Context, changed func(NodeStatus)) error {
	w := &watch{m: m, changed: changed}
	defer w.close()
	for {
		w.read()
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

// watch is the state of one Watch.
type watch struct {
	m       *Manager
	changed func(NodeStatus)
	armed   map[string]string // directory to watch -> its device and inode
	added   []string          // directories that are watched
	watcher *fsnotify.Watcher // nil: the host has no inotify instance left
	err     error
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing was written, so an error does not matter
	}
	w.watcher = nil
}

// arm watches all relevant directories. A watch belongs to an inode, not to a name. If a name has a new inode, arm
// creates all watches again until they match. It reports whether it created any, since earlier changes had no event.
func (w *watch) arm() (anew bool) {
	for range rounds {
		want := w.directories()
		if w.watcher != nil && maps.Equal(want, w.armed) && w.watchesAll() {
			return anew
		}
		anew = true
		fresh, err := fsnotify.NewWatcher()
		var added []string
		if err == nil {
			inodes := map[string]bool{}
			for dir, inode := range want {
				if inodes[inode] { // another name of a directory, by a link: fsnotify would list only one of them
					continue
				}
				if err2 := fresh.Add(dir); err2 == nil {
					inodes[inode] = true
					added = append(added, dir)
				} else if exists(dir) {
					err = fmt.Errorf("watch %s: %w", dir, err2)
				}
			}
		}
		w.close()
		w.armed, w.added, w.watcher, w.err = want, added, fresh, err
		if fresh == nil {
			return false // polling must do
		}
	}
	return anew
}

// watchesAll reports whether no watch has ended. A directory that was removed and created again may have the same inode.
func (w *watch) watchesAll() bool {
	have := w.watcher.WatchList()
	return !slices.ContainsFunc(w.added, func(dir string) bool { return !slices.Contains(have, dir) })
}

// directories returns the directories to watch, with device and inode: the configuration directories, the nearest
// existing parent of each, the directories that lists have files in, and the targets of links.
func (w *watch) directories() map[string]string {
	out := map[string]string{}
	add := func(dir string) {
		var st syscall.Stat_t
		if syscall.Stat(dir, &st) == nil {
			out[dir] = fmt.Sprintf("%d:%d", st.Dev, st.Ino)
		}
	}
	for _, dir := range w.m.conf.dirs {
		above := filepath.Dir(dir)
		for above != "/" && !exists(above) {
			above = filepath.Dir(above)
		}
		add(above)
		add(dir)
		if target, err := filepath.EvalSymlinks(dir); err == nil {
			add(filepath.Dir(target)) // the target itself may be renamed
		}
	}
	for _, f := range w.m.conf.snapshot() {
		if target, err := filepath.EvalSymlinks(f.path); err == nil && target != f.path {
			add(filepath.Dir(target))
		}
		if f.list != nil && !f.list.LoadOnlyInlinedPlugins {
			add(filepath.Join(filepath.Dir(f.path), f.list.Name))
		}
		if name := f.failedName(); name != "" { // what it lacks may come
			add(filepath.Join(filepath.Dir(f.path), name))
		}
	}
	return out
}

// read reads the directories until everything they refer to was watched during the read.
func (w *watch) read() {
	w.arm()
	news := false
	for range rounds {
		news = w.m.conf.load() || news
		if !w.arm() {
			break
		}
	}
	if (w.m.conf.watched(w.err) || news) && w.changed != nil {
		w.changed(w.m.Networks())
	}
}

// watched records whether changes are reported, and returns whether that changed.
func (c *configuration) watched(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := text(c.unwatched)
	c.unwatched = err
	return before != text(err)
}

// wait returns after a relevant event, once no more events follow.
func (w *watch) wait(ctx context.Context) error {
	every := pollAnyway
	var events chan fsnotify.Event
	var errs chan error
	if w.watcher != nil {
		events, errs = w.watcher.Events, w.watcher.Errors
	}
	if w.err != nil {
		every = pollTime
	}
	poll := time.NewTimer(every)
	defer poll.Stop()
	var settled, limit <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-errs: // for example an overflow: anything may have changed
			return nil
		case e := <-events:
			if !w.matters(e.Name) {
				continue
			}
			settled = time.After(settleTime)
			if limit == nil {
				limit = time.After(settleLimit)
			}
		case <-poll.C:
			return nil
		case <-settled:
			return nil
		case <-limit:
			return nil
		}
	}
}

// matters reports whether an event is about the configuration, not about another file next to its directory.
func (w *watch) matters(name string) bool {
	for _, dir := range w.m.conf.dirs {
		if name == dir || strings.HasPrefix(dir, name+string(os.PathSeparator)) {
			return true // the directory itself, or a parent
		}
		if strings.HasPrefix(name, dir+string(os.PathSeparator)) {
			return true
		}
		if target, err := filepath.EvalSymlinks(dir); err != nil || strings.HasPrefix(name, target) {
			return true
		}
	}
	for _, f := range w.m.conf.snapshot() {
		if target, err := filepath.EvalSymlinks(f.path); err != nil || filepath.Dir(target) == filepath.Dir(name) {
			return true
		}
	}
	return false
}
