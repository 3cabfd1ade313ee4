package podnet

import (
	"fmt"
	"os"
)

// missingError is an os.ErrNotExist with words of its own.
type missingError string

func missing(format string, args ...any) error { return missingError(fmt.Sprintf(format, args...)) }

func (e missingError) Error() string { return string(e) }

// Is implements errors.Is.
func (e missingError) Is(target error) bool { return target == os.ErrNotExist }
