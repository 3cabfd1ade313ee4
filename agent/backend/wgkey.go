package backend

import (
	"cmp"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/plainfile"
)

// Keys manages a node's WireGuard keys: a file with the private key and, during a rotation, a second file with the next
// key. Only root can read them.
//
// A device has one key, and changing it ends its sessions. To lose no packets, a rotation has two steps. First the next
// key is created and published as the node's key, with the current one as the previous key. The device keeps the
// current key. Peers then know both keys and keep the addresses on the previous one. When the store has had the next
// key for Grace, the device gets it. Its first packet to a peer starts a new session, and the peer moves the addresses
// to the new key (kernel.WireGuard). The node then stops publishing the previous key, so that peers without a new
// session move the addresses, too.
type Keys struct {
	File string
	// Published reports whether the store has this public key of the node. While it has not, peers would reject the key.
	// Nil: it always has.
	Published func(public string) bool
}

// Grace is the time for which the next key is published before it is used.
const Grace = time.Minute

func (k Keys) next() string { return k.File + ".next" }

// Rotate creates the first key, rotates it when it is older than every (0: never), and returns the keys to publish. Call
// it regularly. File always contains the device's key. If the rotation fails, Rotate returns the keys so far and the
// error. Without a valid key it returns only the error.
func (k Keys) Rotate(now time.Time, every time.Duration) (public, previous string, err error) {
	failed := k.updateFiles(now, every)
	if _, err = os.Stat(k.next()); err == nil {
		public, previous, err = k.bothKeys()
	} else {
		public, err = publicOf(k.File)
	}
	return public, previous, cmp.Or(failed, err)
}

// updateFiles creates and replaces the key files.
func (k Keys) updateFiles(now time.Time, every time.Duration) error {
	made, err := k.createdAt(k.File, now)
	if errors.Is(err, os.ErrNotExist) {
		return makeKey(k.File)
	}
	if err != nil {
		return err
	}
	began, err := k.createdAt(k.next(), now)
	known := err == nil
	if known {
		known, err = k.published()
	}
	switch {
	case err == nil && !known:
		return os.Chtimes(k.next(), now, now) // Grace begins when the store has the key
	case err == nil && now.Sub(began) >= Grace:
		if err := os.Rename(k.next(), k.File); err != nil {
			return fmt.Errorf("rotate the WireGuard key: %w", err)
		}
	case errors.Is(err, os.ErrNotExist) && every > 0 && now.Sub(made) >= every:
		return makeKey(k.next())
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	return nil
}

// published reports whether the store has the next key.
func (k Keys) published() (bool, error) {
	public, err := publicOf(k.next())
	return err == nil && (k.Published == nil || k.Published(public)), err
}

// bothKeys returns both keys of a rotation, or none.
func (k Keys) bothKeys() (public, previous string, err error) {
	if public, err = publicOf(k.next()); err == nil {
		previous, err = publicOf(k.File)
	}
	if err != nil {
		return "", "", err
	}
	return public, previous, nil
}

// createdAt returns when a key was created. A time in the future, after a clock change, counts as now, so that the key is
// not used until then.
func (k Keys) createdAt(file string, now time.Time) (time.Time, error) {
	st, err := os.Stat(file)
	if err == nil && st.ModTime().After(now) {
		return now, os.Chtimes(file, now, now)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("WireGuard key: %w", err)
	}
	return st.ModTime(), nil
}

// makeKey creates a key file if it does not exist.
func makeKey(file string) error {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("WireGuard key: %w", err)
	}
	half, err := os.CreateTemp(filepath.Dir(file), ".key-*") // creates the file with mode 0600
	if err != nil {
		return fmt.Errorf("WireGuard key: %w", err)
	}
	defer os.Remove(half.Name())
	_, err = half.WriteString(base64.StdEncoding.EncodeToString(key.Bytes()) + "\n")
	if err = errors.Join(err, half.Sync(), half.Close()); err == nil {
		err = os.Link(half.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("write a new WireGuard key: %w", err)
	}
	return nil
}

func publicOf(file string) (string, error) {
	raw, err := plainfile.Read(file)
	if err != nil {
		return "", fmt.Errorf("WireGuard key: %w", err)
	}
	private, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil || len(private) != 32 {
		return "", fmt.Errorf("%s does not contain a WireGuard key (32 bytes in base64): remove it, and the agent generates a new one", file)
	}
	key, err := ecdh.X25519().NewPrivateKey(private)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()), nil
}
