// Package jsontext decodes JSON strictly: exactly one value, by the standard library's grammar,
// without unknown fields.
package jsontext

import (
	"bytes"
	standard "encoding/json"

	"github.com/goccy/go-json"
)

// Check refuses what is not exactly one JSON value. go-json is faster and forgives much: NaN, an
// excess bracket at the end.
func Check(raw []byte) error {
	var data standard.RawMessage
	return standard.Unmarshal(raw, &data)
}

// Embedded reads a file that is part of the program, so that a broken one is a defect and panics.
func Embedded[T any](name string, raw []byte) (value T) {
	if err := json.Unmarshal(raw, &value); err != nil {
		panic(name + ": " + err.Error())
	}
	return value
}

// Decode reads a value that Check let through, and refuses unknown fields.
func Decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
