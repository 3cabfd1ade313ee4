package libcni

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
)

// NotFoundError says that no file in a directory has a network of this name.
type NotFoundError struct{ Dir, Name string }

func (e NotFoundError) Error() string {
	return fmt.Sprintf("no net configuration with name %q in %s", e.Name, e.Dir)
}

// Is makes it match os.ErrNotExist.
func (e NotFoundError) Is(target error) bool { return target == fs.ErrNotExist }

// NoConfigsFoundError says that a directory has no configuration at all.
type NoConfigsFoundError struct{ Dir string }

func (e NoConfigsFoundError) Error() string {
	return "no net configurations found in " + e.Dir
}

// Is makes it match os.ErrNotExist.
func (e NoConfigsFoundError) Is(target error) bool { return target == fs.ErrNotExist }

// ConfFiles returns the files of a directory with one of the extensions, sorted. It returns none if the directory does
// not exist.
func ConfFiles(dir string, extensions []string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list configurations: %w", err)
	}
	var files []string
	for _, e := range entries {
		isFile := e.Type().IsRegular() || e.Type() == fs.ModeSymlink // to read a FIFO would wait for a writer
		if isFile && slices.Contains(extensions, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// ConfFromFile reads the configuration of one plugin.
func ConfFromFile(filename string) (*NetworkConfig, error) {
	conf, err := fromFile(filename, ConfFromBytes)
	if err == nil {
		conf.origin = &origin{file: filename, data: conf.Bytes}
	}
	return conf, err
}

// ConfListFromFile reads a network list. Unless the list sets loadOnlyInlinedPlugins, it adds the plugins from *.conf
// in the directory next to it with the network's name.
func ConfListFromFile(filename string) (*NetworkConfigList, error) {
	list, err := fromFile(filename, ConfListFromBytes)
	if err != nil {
		return nil, err
	}
	list.fromFile(filename, list.Bytes)
	if !list.LoadOnlyInlinedPlugins {
		if err := list.loadDropIns(filepath.Join(filepath.Dir(filename), list.Name)); err != nil {
			return nil, err
		}
	}
	if len(list.Plugins) == 0 {
		return nil, fmt.Errorf("%s: no plugin configs found: network %s has no plugins in its list and no *.conf in %s",
			filename, list.Name, filepath.Join(filepath.Dir(filename), list.Name))
	}
	return list, nil
}

// whole returns the configuration with all plugins in the list itself. A DEL from the cache reads no other file.
func (l *NetworkConfigList) whole() []byte {
	conf, err := rawjson.ParseObject(l.Bytes)
	if err != nil || l.LoadOnlyInlinedPlugins {
		return l.Bytes
	}
	var inlined []rawjson.Value
	if raw, found := conf.Get("plugins"); found {
		inlined, _ = rawjson.Elements(raw)
	}
	if len(inlined) == len(l.Plugins) {
		return l.Bytes
	}
	var plugins [][]byte
	for _, p := range l.Plugins {
		plugins = append(plugins, p.Bytes)
	}
	return withPlugins(conf, plugins)
}

// WithPlugins returns the list with these configurations of plugins instead of its own, and with no others from files.
// It fails if one of them is invalid.
func (l *NetworkConfigList) WithPlugins(plugins [][]byte) (*NetworkConfigList, error) {
	conf, err := rawjson.ParseObject(l.Bytes)
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", l.Name, err)
	}
	return ConfListFromBytes(withPlugins(conf, plugins))
}

func withPlugins(list *rawjson.Object, plugins [][]byte) []byte {
	list.SetArray("plugins", plugins)
	list.Set("loadOnlyInlinedPlugins", []byte("true"))
	return list.Bytes()
}

func (l *NetworkConfigList) loadDropIns(dir string) error {
	files, err := ConfFiles(dir, []string{".conf"})
	if err != nil {
		return err
	}
	for _, file := range files {
		conf, err := ConfFromFile(file)
		if err != nil {
			return err
		}
		l.Plugins = append(l.Plugins, conf)
	}
	return nil
}

// fromFile reads a file. An error about the contents includes the file name.
func fromFile[T any](filename string, parse func([]byte) (T, error)) (conf T, err error) {
	data, err := os.ReadFile(filename)
	if err != nil {
		return conf, fmt.Errorf("read network configuration: %w", err)
	}
	conf, err = parse(data)
	if e, ok := errors.AsType[*cni.ConfigError](err); ok {
		e.File = filename
		return conf, e
	}
	if err != nil {
		return conf, fmt.Errorf("%s: %w", filename, err)
	}
	return conf, nil
}

// LoadConf returns the single configuration with a name from a directory. An unreadable file is an error only if no
// other file has the name.
func LoadConf(dir, name string) (*NetworkConfig, error) {
	files, err := ConfFiles(dir, []string{".conf", ".json"})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, NoConfigsFoundError{Dir: dir}
	}
	var broken []error
	for _, file := range files {
		conf, err := ConfFromFile(file)
		if err != nil {
			broken = append(broken, err)
		} else if conf.Network.Name == name {
			return conf, nil
		}
	}
	return nil, withBroken(NotFoundError{Dir: dir, Name: name}, broken)
}

// LoadNetworkConf returns the network with a name from a directory. If no list has the name, it converts a single
// configuration.
func LoadNetworkConf(dir, name string) (*NetworkConfigList, error) {
	files, err := ConfFiles(dir, []string{".conflist"})
	if err != nil {
		return nil, err
	}
	var broken []error
	for _, file := range files {
		list, err := ConfListFromFile(file)
		if err != nil {
			broken = append(broken, err)
		} else if list.Name == name {
			return list, nil
		}
	}
	single, err := LoadConf(dir, name)
	if err == nil {
		return ConfListFromConf(single)
	}
	if _, none := errors.AsType[NoConfigsFoundError](err); none && len(files) > 0 {
		err = NotFoundError{Dir: dir, Name: name}
	}
	return nil, withBroken(err, broken)
}

// LoadConfList is the older name of LoadNetworkConf.
func LoadConfList(dir, name string) (*NetworkConfigList, error) {
	return LoadNetworkConf(dir, name)
}

// withBroken returns a lone error unchanged, for callers that check its type.
func withBroken(err error, broken []error) error {
	if len(broken) == 0 {
		return err
	}
	return errors.Join(append([]error{err}, broken...)...)
}
