package ipam

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/internal/filelock"
)

// Options change how a Store is opened. The zero value is for an ADD.
type Options struct {
	// Existing does not create a missing directory: Open then fails with os.ErrNotExist. Use it to release or to read.
	Existing bool
	// AllRequested means that every allocation requests its address by number, so Allocate does not write the cursor.
	AllRequested bool
	// BootID replaces the kernel's boot ID; "" means the kernel's.
	BootID string
}

// Store is a network's locked address directory. Between Open and Close nobody else changes it, whichever
// implementation they use.
type Store struct {
	dir  directory
	temp string // directory of the index and of temporary files
	boot key
	lock *os.File

	index        *index
	storeErr     error    // why the index is in memory only; an allocation needs it stored
	last         []string // the contents of each last_reserved_ip.N
	changing     bool     // the header on disk says that a change is in progress
	invalid      bool     // the index is wrong: leave it to be rebuilt
	allRequested bool     // from the options
	reused       string   // the spare that becomes an address file; "": none
}

// Open locks a network's addresses in the directory <dataDir>/<network>. It waits for the lock until ctx ends, or one
// minute if ctx has no deadline.
func Open(ctx context.Context, dataDir, network string, opts Options) (*Store, error) {
	if err := cni.ValidateNetworkName(network); err != nil {
		return nil, err
	}
	boot := opts.BootID
	if boot == "" {
		id, err := bootid.Read()
		if err != nil {
			return nil, err
		}
		boot = id
	}
	s := &Store{
		dir:  directory(filepath.Join(dataDir, network)),
		temp: filepath.Join(dataDir, ".fairlead", network),
		boot: textKey(boot), allRequested: opts.AllRequested,
	}
	var err error
	if s.lock, err = lockDir(ctx, string(s.dir), !opts.Existing); err != nil {
		if opts.Existing && errors.Is(err, syscall.ENAMETOOLONG) {
			err = fmt.Errorf("no directory can have the name of network %s: %w", network, os.ErrNotExist)
		}
		return nil, err
	}
	if err := s.load(); err != nil {
		s.Close()
		return nil, fmt.Errorf("network %s: %w", network, err)
	}
	return s, nil
}

// Close releases the lock.
func (s *Store) Close() error {
	s.index.close()
	return filelock.Close(s.lock)
}

// load reads the index. It rebuilds the index if it is missing or broken, if a change was interrupted, or if somebody
// else changed the directory.
func (s *Store) load() error {
	x, err := openIndex(s.temp + "/index")
	if err != nil && !isAbsent(err) {
		return fmt.Errorf("open the address index: %w", err)
	}
	defer func() {
		if x != s.index {
			x.close()
		}
	}()
	if x != nil && x.header.boot != s.boot {
		if err := s.reclaim(x); err != nil {
			return err
		}
		x.close()
		x = nil
	}
	if s.last, err = s.dir.lastReserved(); err != nil {
		return err
	}
	if x == nil || !x.header.clean || x.header.last != s.lastKey() {
		return s.rebuild(x)
	}
	if state, err := s.dir.state(); err != nil || state != x.header.dir {
		return errors.Join(err, s.rebuild(x))
	}
	s.index = x
	return nil
}

// isAbsent reports whether an index must be created. On a read-only filesystem it serves this process only.
func isAbsent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, errInvalidIndex) || errors.Is(err, syscall.EROFS)
}

// beginChange notes on disk that a change is in progress. After a kill the next process rebuilds the index.
func (s *Store) beginChange(p pendingAdd) error {
	s.index.header.clean = false
	s.index.header.pending = p
	s.changing = true
	return s.index.putHeader()
}

// endChange notes the directory's state after a change. If that fails, the index stays marked as changing, and the next
// process rebuilds it.
func (s *Store) endChange() {
	if !s.changing || s.invalid {
		return
	}
	state, err := s.dir.backdate()
	if err != nil {
		return
	}
	h := &s.index.header
	h.clean, h.pending, h.dir, h.last = true, pendingAdd{}, state, s.lastKey()
	s.changing = s.index.putHeader() != nil
}

func (s *Store) lastKey() key { return textKey(strings.Join(s.last, "\n")) }
