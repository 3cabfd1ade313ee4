package libcni

import (
	"fmt"
	"os"
	"time"
)

// CacheError says that a file of the cache means nothing to us; Warn is given it.
type CacheError struct {
	File    string
	Spoiled bool // nobody can read it: empty or cut off, by the kill of a runtime that writes in place
	Err     error
}

func (e *CacheError) Error() string {
	return fmt.Sprintf("cache file %s is corrupt: %v", e.File, e.Err)
}
func (e *CacheError) Unwrap() error { return e.Err }

// Old tells whether the file is a spoiled one that nobody has written to for so
// long. Absence is an os.ErrNotExist.
func (e *CacheError) Old(age time.Duration) (bool, error) {
	info, err := os.Stat(e.File)
	if err != nil {
		return false, err
	}
	return e.Spoiled && time.Since(info.ModTime()) >= age, nil
}
