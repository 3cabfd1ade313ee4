package wireguard

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadPrivateKey reads a private key in base64 from a file that only its owner may read.
func ReadPrivateKey(file string) (key Key, err error) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return key, fmt.Errorf("private key %s: %w", file, err)
	}
	if st.Mode&0o077 != 0 {
		return key, fmt.Errorf("private key %s: others than its owner can use it (mode %04o): run \"chmod 0600 %s\", and create a new key if others may have read this one", file, st.Mode&0o777, file)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return key, err
	}
	if key, err = ParseKey(strings.TrimSpace(string(raw))); err != nil {
		return key, fmt.Errorf("private key %s: %w", file, err)
	}
	key[0] &= 248 // RFC 7748, section 5: clamped, as every implementation stores it
	key[31] = key[31]&127 | 64
	return key, nil
}

// ParseKey decodes 32 bytes of base64. Its error does not contain the input.
func ParseKey(s string) (key Key, err error) {
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("want 32 bytes in base64, 44 characters")
	}
	copy(key[:], raw)
	return key, nil
}
