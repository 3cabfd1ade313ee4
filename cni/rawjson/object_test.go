package rawjson_test

import (
	"testing"

	"github.com/fairlead/fairlead/cni/rawjson"
)

func TestObject(t *testing.T) {
	t.Parallel()
	o, err := rawjson.ParseObject([]byte(`{ "b": [1,  2], "a": 1.50, "c": "x", "a": 2 }`))
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := o.Get("a"); string(raw) != "2" || o.String("c") != "x" || o.String("b") != "" || o.Len() != 4 {
		t.Errorf("a = %s, c = %q, b = %q", raw, o.String("c"), o.String("b"))
	}
	o.Set("a", []byte("{}"))
	o.Delete("c")
	o.SetString("d", `"`)
	if got, want := string(o.Bytes()), `{"b":[1,  2],"a":{},"d":"\""}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, ok := o.Get("c"); ok {
		t.Error("c is still there")
	}
}
