package tracetest

import (
	"bytes"
	"compress/gzip"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// JSON is the content of a trace file before it is packed.
func JSON(t *trace.Trace) []byte {
	raw, err := json.Marshal(struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
		*trace.Trace
	}{trace.FormatName, trace.FormatVersion, t})
	if err != nil {
		panic(err)
	}
	return raw
}

// Pack packs the JSON of a trace file.
func Pack(raw []byte) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(raw); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return packed.Bytes()
}

// Encode returns the content of a trace file.
func Encode(t *trace.Trace) []byte { return Pack(JSON(t)) }
