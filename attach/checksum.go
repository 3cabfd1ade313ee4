package attach

import (
	"bytes"
	"fmt"

	"github.com/fairlead/fairlead/internal/checksum"
	"github.com/fairlead/fairlead/internal/leanjson"
)

// A record begins with a checksum of the rest. With a damaged name of a link, DEL would remove another link, and the
// container's would stay. A record without a checksum is of an earlier version.
const (
	sumStart = `{"sum":"`
	sumEnd   = `",`
	sumLen   = 8 // hexadecimal digits
)

// encode returns the content of a record's file.
func encode(r *Record) ([]byte, error) {
	start := len(sumStart) + sumLen + len(sumEnd)
	raw, err := leanjson.Append(make([]byte, start-1, 4096), r)
	if err != nil {
		return nil, err
	}
	copy(raw, fmt.Sprintf("%s%08x%s", sumStart, sumOf(raw[start:]), sumEnd)) // over the opening brace
	return raw, nil
}

// intact reports whether a record's content has its checksum.
func intact(raw []byte) bool {
	if !bytes.HasPrefix(raw, []byte(sumStart[:len(`{"sum"`)])) {
		return true
	}
	start := len(sumStart) + sumLen + len(sumEnd)
	return len(raw) > start && string(raw[:start]) == fmt.Sprintf("%s%08x%s", sumStart, sumOf(raw[start:]), sumEnd)
}

// sumOf returns the checksum of a record's content. Finish changes a record in its place, and overwrite adds spaces:
// neither changes the checksum.
func sumOf(body []byte) uint32 {
	return checksum.Of(bytes.ReplaceAll(bytes.TrimRight(body, " "), []byte(done), []byte(notDone)))
}
