package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// durationVar adds a flag with a duration above zero.
func durationVar(flags *pflag.FlagSet, to *time.Duration, name string, usual time.Duration, usage string) {
	*to = usual
	flags.Var((*duration)(to), name, usage)
}

type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }

// Type returns the type name of package pflag for durations, so help and errors name the type in the same way.
func (*duration) Type() string { return "duration" }

// Set accepts a duration above zero.
func (d *duration) Set(value string) error {
	x, err := time.ParseDuration(value)
	if err == nil && x <= 0 {
		err = errors.New("not above zero")
	}
	if err != nil {
		return err
	}
	*d = duration(x)
	return nil
}
