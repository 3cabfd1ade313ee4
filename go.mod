module github.com/fairlead/fairlead

go 1.26.0

require (
	github.com/rogpeppe/go-internal v1.14.1
	golang.org/x/sys v0.48.0
)

require golang.org/x/tools v0.26.0 // indirect
