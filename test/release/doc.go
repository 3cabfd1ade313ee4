// Package release installs the files of a release into fresh Debian roots and runs the documented commands there.
// "make test-release" builds a release and runs it.
package release
