package libcni

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cni"
)

// origin is the file of a plugin's configuration.
type origin struct {
	file string
	data []byte // content of the file
	at   string // path of the configuration in data; "": all of it
}

// locate makes an error about a value of the configuration name the position in the file, if it is there.
func (n network) locate(conf *NetworkConfig, err error) error {
	e, ok := errors.AsType[*cni.Error](err)
	if !ok {
		return err
	}
	line, column, ok := n.position(conf, e.Details)
	if !ok {
		return err
	}
	found := *e
	found.Details = fmt.Sprintf("at %s:%d:%d", conf.origin.file, line, column)
	return &found
}

// Locate makes a *cni.ConfigError about a request for a plugin of the list name the position in the file instead of that in
// the request, which no person wrote.
func (l *NetworkConfigList) Locate(conf *NetworkConfig, err error) error {
	e, ok := errors.AsType[*cni.ConfigError](err)
	if !ok {
		return err
	}
	details := cni.PositionDetails(e.Line, e.Column)
	if e.Line, e.Column, ok = l.network().position(conf, details); ok {
		e.File = conf.origin.file
	}
	return err
}

// position returns the position in the file of a value whose position in the request is in an error's details. It returns
// zeros for a value that is not in the file.
func (n network) position(conf *NetworkConfig, details string) (line, column int, ok bool) {
	if conf.origin == nil {
		return 0, 0, false
	}
	req, err := n.request(conf) // keys that the runtime adds come after these
	if err != nil {
		return 0, 0, false
	}
	return cni.Relocate(details, req.Bytes(), conf.origin.data, conf.origin.at)
}

// fromFile notes the file of the plugins of a list.
func (l *NetworkConfigList) fromFile(file string, data []byte) {
	for i, p := range l.Plugins {
		p.origin = &origin{file, data, fmt.Sprintf("plugins[%d]", i)}
	}
}

// CheckVersion returns an error if ADD rejects the list's version, with the position in the list's file. A caller that checks
// it before it runs a plugin needs no DEL, which plugins would reject as well.
func (l *NetworkConfigList) CheckVersion() error {
	err := cni.CheckVersion(l.Bytes, l.CNIVersion)
	if e, ok := errors.AsType[*cni.ConfigError](err); ok && len(l.Plugins) > 0 && l.Plugins[0].origin != nil {
		e.File = l.Plugins[0].origin.file
	}
	return err
}

// ForDel returns the list, or, if ADD rejects its version, a copy with a version that plugins accept in a DEL. So a DEL can
// remove what an ADD left that failed because of the version.
func (l *NetworkConfigList) ForDel() *NetworkConfigList {
	if l.CheckVersion() == nil {
		return l
	}
	accepted := *l
	accepted.CNIVersion = "1.0.0" // older plugins do not know a later one
	return &accepted
}
