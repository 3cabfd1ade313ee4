package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/internal/dbus"
)

// ZoneSource is an address in a zone of firewalld, set over D-Bus. Source: firewalld.dbus(5).
type ZoneSource struct {
	base
	Zone string `json:",omitzero"`
	Addr string `json:",omitzero"`
}

const (
	firewalldName = "org.fedoraproject.FirewallD1"
	firewalldPath = "/org/fedoraproject/FirewallD1"
	firewalldZone = firewalldName + ".zone"
)

func (z *ZoneSource) kind() string { return "zone" }
func (z *ZoneSource) Side() Side   { return Host }
func (z *ZoneSource) Shared() bool { return false }
func (z *ZoneSource) String() string {
	return "firewall-cmd --zone=" + z.Zone + " --add-source=" + z.Addr
}

func (z *ZoneSource) call(method string) error {
	c, err := dbus.System()
	if err != nil {
		return fmt.Errorf("firewalld: %w", err)
	}
	defer c.Close()
	return c.Call(firewalldName, firewalldPath, firewalldZone, method, z.Zone, z.Addr)
}

// ensure adds the source. A source that is in the zone already is success. A source that an earlier attachment left in
// another zone is an error.
func (z *ZoneSource) ensure(e *Engine) error {
	if err := e.flush(); err != nil {
		return err
	}
	err := z.call("addSource")
	if isFirewalld(err, "ALREADY_ENABLED") {
		return nil
	}
	if err == nil {
		e.noteCreated(z)
	}
	return err
}

// diff ignores zones while firewalld is not running.
func (z *ZoneSource) diff(*Engine) ([]string, error) {
	if !Firewalld() {
		return nil, nil
	}
	c, err := dbus.System()
	if err != nil {
		return nil, fmt.Errorf("firewalld: %w", err)
	}
	defer c.Close()
	in, err := c.CallBool(firewalldName, firewalldPath, firewalldZone, "querySource", z.Zone, z.Addr)
	if err != nil || in {
		return nil, err
	}
	return []string{"is missing"}, nil
}

// remove removes the source. A firewalld that has ended has forgotten it.
func (z *ZoneSource) remove(*Engine) error {
	err := z.call("removeSource")
	if isFirewalld(err, "NOT_ENABLED") || isFirewalld(err, "UNKNOWN_SOURCE") || isFirewalld(err, "ZONE_CONFLICT") || isUnowned(err) {
		return os.ErrNotExist
	}
	return err
}

// isUnowned reports whether the bus answered that no process has firewalld's name.
func isUnowned(err error) bool {
	e, ok := errors.AsType[*dbus.Error](err)
	return ok && (e.Name == "org.freedesktop.DBus.Error.ServiceUnknown" || e.Name == "org.freedesktop.DBus.Error.NameHasNoOwner")
}

// isFirewalld reports whether an error is a firewalld exception with the given code, the first word of its message.
func isFirewalld(err error, code string) bool {
	e, ok := errors.AsType[*dbus.Error](err)
	return ok && strings.HasPrefix(e.Message, code)
}

// Firewalld reports whether firewalld is running.
func Firewalld() bool {
	c, err := dbus.System()
	if err != nil {
		return false
	}
	defer c.Close()
	owned, err := c.CallBool("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameHasOwner", firewalldName)
	return err == nil && owned
}
