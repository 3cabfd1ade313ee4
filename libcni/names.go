package libcni

import "path/filepath"

// These are the names that the reference library has since v1.3.0. It keeps the older ones as well.

// NetworkConfFromBytes is ConfListFromBytes.
func NetworkConfFromBytes(data []byte) (*NetworkConfigList, error) { return ConfListFromBytes(data) }

// NetworkConfFromFile is ConfListFromFile.
func NetworkConfFromFile(filename string) (*NetworkConfigList, error) {
	return ConfListFromFile(filename)
}

// NetworkPluginConfFromBytes is ConfFromBytes.
func NetworkPluginConfFromBytes(data []byte) (*PluginConfig, error) { return ConfFromBytes(data) }

// NetworkPluginConfsFromFiles reads the plugins of a network from *.conf in the subdirectory with the network's name.
func NetworkPluginConfsFromFiles(dir, network string) ([]*PluginConfig, error) {
	var list NetworkConfigList
	err := list.loadDropIns(filepath.Join(dir, network))
	return list.Plugins, err
}
