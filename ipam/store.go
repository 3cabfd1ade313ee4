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
)

// Options change how a Store is opened. The zero value is for an ADD.
type Options struct {
	// Existing leaves a directory that is not there alone: Open then fails
	// with os.ErrNotExist. What only takes away or looks wants this.
	Existing bool
	// Asked is a network whose addresses are all asked for by number: where to go on
	// is not written down.
	Asked bool
	// BootID stands for this start of the machine; "": the kernel's.
	BootID string
}

// Store is a network's directory of addresses, locked: between Open and Close
// nobody else, of either implementation, changes it.
type Store struct {
	dir  directory
	temp string // directory of the index and of files not yet in place
	boot key
	lock *os.File

	index    *index
	storeErr error    // why the index is in memory only; an allocation needs it stored
	last     []string // what each last_reserved_ip.N says
	changing bool     // the header on disk says so
	unsound  bool     // the index was found wrong: leave it to be built again
	asked    bool     // as in the options
	reused   string   // the spare that is to be an address file; "": none
}

// Open locks the addresses of a network: the directory <dataDir>/<network>. It
// waits for the lock as long as ctx allows, a minute if that sets no bound.
func Open(ctx context.Context, dataDir, network string, opts Options) (*Store, error) {
	if err := cni.ValidateNetworkName(network); err != nil {
		return nil, err
	}
	boot := opts.BootID
	if boot == "" {
		id, err := bootID()
		if err != nil {
			return nil, err
		}
		boot = id
	}
	s := &Store{
		dir:  directory(filepath.Join(dataDir, network)),
		temp: filepath.Join(dataDir, ".fairlead", network),
		boot: textKey(boot), asked: opts.Asked,
	}
	var err error
	if s.lock, err = lockDir(ctx, string(s.dir), !opts.Existing); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		s.Close()
		return nil, fmt.Errorf("network %s: %w", network, err)
	}
	return s, nil
}

// Close lets go of the lock.
func (s *Store) Close() error {
	s.index.close()
	return s.lock.Close()
}

// load reads the index, and builds it again if it cannot be trusted: it is
// missing or broken, a change was cut off, or somebody else was here.
func (s *Store) load() error {
	x, err := openIndex(s.temp + "/index")
	if err != nil && !isAbsent(err) {
		return fmt.Errorf("open the index of addresses: %w", err)
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

// isAbsent tells whether an index is to be made anew. On a read-only
// filesystem it serves this process only.
func isAbsent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, errUnsound) || errors.Is(err, syscall.EROFS)
}

// change says on disk that a change is under way: whoever comes after a kill
// builds the index again.
func (s *Store) change(p pendingAdd) error {
	s.index.header.clean = false
	s.index.header.pending = p
	s.changing = true
	return s.index.putHeader()
}

// settle notes the state of the directory after a change. If that fails the
// index stays unclean, and whoever comes next builds it again.
func (s *Store) settle() {
	if !s.changing || s.unsound {
		return
	}
	state, err := s.dir.mark()
	if err != nil {
		return
	}
	h := &s.index.header
	h.clean, h.pending, h.dir, h.last = true, pendingAdd{}, state, s.lastKey()
	s.changing = s.index.putHeader() != nil
}

func (s *Store) lastKey() key { return textKey(strings.Join(s.last, "\n")) }
