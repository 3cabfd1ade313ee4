//go:build race

package plugintest

func flags() []string { return []string{"-race"} }
