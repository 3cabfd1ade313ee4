package rawjson_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/cni/rawjson"
)

type word string

type deep struct {
	Low  string `json:"low"`
	Same string `json:"same"`
}

type embedded struct {
	deep
	CNIVersion string          `json:"cniVersion"`
	Same       string          `json:"same"`
	Raw        json.RawMessage `json:"raw"`
}

type document struct {
	embedded
	Text    string                 `json:"text"`
	Word    word                   `json:"word"`
	On      *bool                  `json:"on"`
	Int     int                    `json:"int"`
	Small   int8                   `json:"small"`
	Unsgnd  uint16                 `json:"unsigned"`
	Float   float64                `json:"float"`
	Addr    netip.Addr             `json:"addr"`
	Nets    []netip.Prefix         `json:"nets"`
	List    []embedded             `json:"list"`
	Lists   [][]*int               `json:"lists"`
	Map     map[string]deep        `json:"map"`
	Strings map[string]string      `json:"strings"`
	Words   map[word]int           `json:"words"`
	Any     any                    `json:"any"`
	Anys    map[string]interface{} `json:"anys"`
	Bytes   []byte                 `json:"bytes"`
	Array   [2]int                 `json:"array"`
	Quoted  int                    `json:"quoted,string"`
	Inner   struct {
		A, B string
	} `json:"inner"`
	Ignored string `json:"-"`
	Plain   string
	//lint:ignore U1000 both decoders have to skip a field that is not exported
	hidden string
}

var documents = []string{
	`{}`, `null`, `[]`, `"x"`, ` { "text" : "a" } `,
	`{"cniVersion":"1.0.0","same":"outer","low":"l","raw":{"a": [1, 2]},"text":"t\n\u00e9","word":"w","on":true}`,
	`{"CNIVERSION":"x","TEXT":"y","int":-5,"small":127,"unsigned":65535,"float":1.5e3}`,
	`{"addr":"10.0.0.1","nets":["10.0.0.0/8","fd00::/8"],"list":[{"low":"1"},{}],"lists":[[1,null,3],[],null]}`,
	`{"map":{"a":{"low":"b"},"c":null},"strings":{"x":"y","é":"ü"},"any":[1,"a",null],"anys":{"k":{"v":1}}}`,
	`{"inner":{"a":"1","B":"2"},"plain":"p","Ignored":"no","hidden":"no","-":"no"}`,
	`{"text":null,"on":null,"int":null,"nets":null,"map":null,"raw":null,"addr":null,"inner":null}`,
	`{"int":1.5}`, `{"small":128}`, `{"text":5}`, `{"addr":"nothing"}`, `{"addr":5}`, `{"on":"x"}`, `{"list":{}}`, `{"map":[]}`,
	`{"bytes":"aGk=","array":[1,2],"quoted":"5","words":{"a":1}}`, `{"text":"a","text":"b","nets":["10.0.0.0/8"],"nets":[]}`,
	`{"any":1,"any":"x"}`, `{"lists":[[1],[2]],"int":1e2}`, `{"int":-0,"float":-0,"text":"\ud800"}`,
}

func TestDecodeAsEncodingJSON(t *testing.T) {
	t.Parallel()
	left := 0
	for _, d := range documents {
		if !same(t, []byte(d)) {
			left++
		}
	}
	if left > 14 {
		t.Errorf("%d of %d were left to encoding/json", left, len(documents))
	}
	if err := rawjson.Decode([]byte("{}"), document{}); err != rawjson.ErrElse {
		t.Errorf("into no pointer: %v", err)
	}
}

// same compares the result with encoding/json, and reports whether Decode read the data itself.
func same(t *testing.T, data []byte) bool {
	t.Helper()
	var ours, std document
	if rawjson.Decode(data, &ours) != nil {
		return false
	}
	if err := json.Unmarshal(data, &std); err != nil {
		t.Errorf("%s was read, encoding/json refuses it: %v", data, err)
		return true
	}
	if !reflect.DeepEqual(ours, std) {
		t.Errorf("%s:\n ours %+v\n want %+v", data, ours, std)
	}
	return true
}

func FuzzDecode(f *testing.F) {
	for _, d := range documents {
		f.Add([]byte(d))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if json.Valid(data) {
			same(t, data)
		} else {
			_ = rawjson.Decode(data, &document{}) // a record may be torn: Decode must return
		}
	})
}
