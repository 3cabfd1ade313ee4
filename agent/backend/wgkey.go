package backend

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Keys are a node's WireGuard keys: a file with the private one, and beside it,
// while it is being turned, the next one. Root alone can read them.
//
// A device has one key, and a session ends with it. So that none is missed a key is
// turned in two steps. The next key is made and published as the node's key, the
// present one as its previous; the device goes on with the present one. Peers now
// know both, and leave the addresses with the previous. After Grace the device gets
// the next key: its first packet to a peer makes a session of it at once, since the
// peer knows it, and by that session the peer sees that it is in use and moves the
// addresses (kernel.WireGuard). The node publishes no previous key any more, by which
// peers that hear nothing of it move them, too.
type Keys struct {
	File string
}

// Grace is how long a next key is known before it is used.
const Grace = time.Minute

func (k Keys) next() string { return k.File + ".next" }

// Turn makes the first key, turns it when it is older than every (0: never), and
// says what the node has to publish. It is to be called now and then; the device's
// key is always that in File.
func (k Keys) Turn(now time.Time, every time.Duration) (public, previous string, err error) {
	made, err := k.born(k.File, now)
	if errors.Is(err, os.ErrNotExist) {
		if err = makeKey(k.File); err == nil {
			made, err = k.born(k.File, now)
		}
	}
	if err != nil {
		return "", "", err
	}
	began, err := k.born(k.next(), now)
	switch {
	case err == nil && now.Sub(began) >= Grace:
		if err := os.Rename(k.next(), k.File); err != nil {
			return "", "", fmt.Errorf("turn the WireGuard key: %w", err)
		}
	case err == nil:
		return k.turning()
	case !errors.Is(err, os.ErrNotExist):
		return "", "", err
	case every > 0 && now.Sub(made) >= every:
		if err := makeKey(k.next()); err != nil {
			return "", "", err
		}
		return k.turning()
	}
	public, err = publicOf(k.File)
	return public, "", err
}

func (k Keys) turning() (public, previous string, err error) {
	if public, err = publicOf(k.next()); err == nil {
		previous, err = publicOf(k.File)
	}
	return public, previous, err
}

// born is when a key was made. One from the future, as a clock that was set back
// makes it, counts from now on: else it would be used until that future.
func (k Keys) born(file string, now time.Time) (time.Time, error) {
	st, err := os.Stat(file)
	if err == nil && st.ModTime().After(now) {
		return now, os.Chtimes(file, now, now)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("WireGuard key: %w", err)
	}
	return st.ModTime(), nil
}

// makeKey writes a new key; one that is there is kept.
func makeKey(file string) error {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("WireGuard key: %w", err)
	}
	half, err := os.CreateTemp(filepath.Dir(file), ".key-*") // of mode 0600
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
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("WireGuard key: %w", err)
	}
	private, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil || len(private) != 32 {
		return "", fmt.Errorf("%s holds no WireGuard key (32 bytes in base64): remove it, and the agent makes another", file)
	}
	key, err := ecdh.X25519().NewPrivateKey(private)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()), nil
}
