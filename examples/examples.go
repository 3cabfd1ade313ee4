// Package examples holds network configurations as their users write them;
// fairlead demo plays with some, and tests run them.
package examples

import "embed"

// Networks are the configurations, as they stand.
//
//go:embed *.conflist *.conf
var Networks embed.FS // read only
