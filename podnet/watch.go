package podnet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fairlead/fairlead/attach"
)

const (
	// settleTime is how long nothing may happen before the directories are read: a
	// file is written in pieces, a directory filled file by file.
	settleTime = 20 * time.Millisecond
	// settleLimit bounds the wait for that.
	settleLimit = 500 * time.Millisecond
	// pollTime is how often they are read where nobody tells of changes, such as on
	// a host whose inotify instances are used up, and pollAnyway where somebody does:
	// a network file system tells only of this host's own changes.
	pollTime, pollAnyway = 2 * time.Second, time.Minute
	// rounds bounds what is done again because something changed meanwhile: the next
	// event does the rest.
	rounds = 10
)

// Watch keeps the Manager up to date with its directories until the context ends,
// and returns its cause. After each reading that found something else than before,
// changed is called, if there is one. A directory may come later, go, come back, be
// replaced, be a symbolic link or hold some, as those of Kubernetes' ConfigMaps.
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

// watch is one Watch.
type watch struct {
	m       *Manager
	changed func(NodeStatus)
	armed   map[string]string // the directories watched, with what they were
	watcher *fsnotify.Watcher // nil: the host has none to spare
	err     error
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing was written
	}
	w.watcher = nil
}

// arm watches all directories that matter. A watch belongs to an inode, not to a
// name: when a name has another one by now, all are made anew, until they are what
// the names are. It tells whether any was made, so that what happened before was
// not told.
func (w *watch) arm() (anew bool) {
	for range rounds {
		want := w.directories()
		if w.watcher != nil && maps.Equal(want, w.armed) {
			return anew
		}
		anew = true
		fresh, err := fsnotify.NewWatcher()
		if err == nil {
			for dir := range want {
				if err2 := fresh.Add(dir); err2 != nil && exists(dir) {
					err = fmt.Errorf("watch %s: %w", dir, err2)
				}
			}
		}
		w.close()
		w.armed, w.watcher, w.err = want, fresh, err
		if fresh == nil {
			return false // looking has to do
		}
	}
	return anew
}

// directories are the configuration directories, the nearest directory above each
// that exists, those that lists have files in, and those that links lead to; each
// with its device and inode.
func (w *watch) directories() map[string]string {
	out := map[string]string{}
	add := func(dir string) {
		if id := attach.NetnsID(dir); id != "" { // device and inode of any path
			out[dir] = id
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
			add(filepath.Dir(target)) // its last part may be what is renamed
		}
	}
	for _, f := range w.m.conf.snapshot() {
		if target, err := filepath.EvalSymlinks(f.path); err == nil && target != f.path {
			add(filepath.Dir(target))
		}
		if f.list != nil && !f.list.LoadOnlyInlinedPlugins {
			add(filepath.Join(filepath.Dir(f.path), f.list.Name))
		}
	}
	return out
}

// read reads the directories, until nothing that they lead to was unwatched when
// they were read.
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

// watched notes whether changes are told of; it tells whether that is new.
func (c *configuration) watched(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := text(c.unwatched)
	c.unwatched = err
	return before != text(err)
}

// wait returns when something has happened that matters, and nothing more does.
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
		case <-errs: // such as an overflow: anything may have happened
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

// matters tells whether an event is about the configuration, and not about a
// neighbour of its directory.
func (w *watch) matters(name string) bool {
	for _, dir := range w.m.conf.dirs {
		if name == dir || strings.HasPrefix(dir, name+string(os.PathSeparator)) {
			return true // it, or a directory above it
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
