package libcni

import (
	"fmt"
	"os"
	"time"
)

// CacheError is an unusable cache file; Warn gets it.
type CacheError struct {
	File    string
	Spoiled bool // not valid JSON, for example because a runtime that writes in place was killed
	Err     error
}

func (e *CacheError) Error() string {
	return fmt.Sprintf("cache file %s is corrupt: %v", e.File, e.Err)
}
func (e *CacheError) Unwrap() error { return e.Err }

// Old reports whether the file is spoiled and unchanged for at least age, or was changed as long ahead of the present time:
// the clock was set back since. If it is gone, the error is os.ErrNotExist.
func (e *CacheError) Old(age time.Duration) (bool, error) {
	info, err := os.Stat(e.File)
	if err != nil {
		return false, err
	}
	return e.Spoiled && time.Since(info.ModTime()).Abs() >= age, nil
}
