package api

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// mutator changes requests. What it does follows from its random numbers alone.
type mutator struct {
	*rand.Rand
	fields map[string][]any // every value that a name has in any seed
	names  []string
}

// literals replace a value as they are written here; the last ones are no JSON.
var literals = []string{
	"null", "true", "false", `""`, `"x"`, `"é\u0000"`, `"\ud800"`, "[]", "{}", "[[]]", "[null]", "[{}]", `{"x":1}`, "0", "-0", "-0.0", "1", "-1", "2", "3",
	"0.5", "-0.5", "1e-9", "1e-320", "1e9", "1e15", "1e30", "1e300", "1.7976931348623157e308", "-1e308", "65536", "2147483647", "2147483648", "-2147483648",
	"4294967296", "1099511627776", "9007199254740993", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "99999999999999999999",
	`"zero"`, `"pipe"`, `"folder"`, `"text"`, `"1e999"`, "1e999", "NaN", "-Infinity", "01", "1.", "0x1p4", "'x'", "tru", "{", "}", "]",
}

// learn collects the values of a seed by their names.
func (m *mutator) learn(value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if m.fields[name] == nil {
				m.names = append(m.names, name)
			}
			m.fields[name] = append(m.fields[name], v[name])
			m.learn(v[name])
		}
	case []any:
		for _, inner := range v {
			m.learn(inner)
		}
	}
}

// request is a seed with some changes.
func (m *mutator) request(seed any) []byte {
	changed := copied(seed)
	if m.IntN(8) > 0 {
		m.changes(&changed)
	}
	return m.bytes(written(changed))
}

// changes makes one to five changes, few more often than many.
func (m *mutator) changes(value *any) {
	within := []any{*value}
	for range 1 + m.IntN(2+m.IntN(4)) {
		all := places(within, nil)
		all[m.IntN(len(all))].change(m)
	}
	*value = within[0]
}

// bytes sometimes changes a request's text, or attaches bytes to it.
func (m *mutator) bytes(text []byte) []byte {
	switch m.IntN(12) {
	case 0:
		return text[:m.IntN(len(text)+1)]
	case 1:
		return append(text, []string{"]", "}", " ]", ",", "{}", "null", "\n\t ", "x", "\xff", "]]]]"}[m.IntN(10)]...)
	case 2:
		text = append(text, 0)
		for range m.IntN(12) {
			text = binary.LittleEndian.AppendUint64(text, math.Float64bits([]float64{1, 2.5, 30, 0, -1, 1e300, math.NaN(), math.Inf(1)}[min(m.IntN(60), m.IntN(8))]))
		}
		return append(text, make([]byte, m.IntN(50)/42)...)
	case 3:
		if len(text) > 0 && !holdsAddresses(text) {
			text[m.IntN(len(text))] = byte(m.IntN(256))
		}
	case 4:
		depth := 1 << m.IntN(18)
		return slices.Concat([]byte(`{"v":1,"op":"plan.check","args":`), bytes.Repeat([]byte{"[{"[m.IntN(2)]}, depth), []byte("}"))
	}
	return text
}

// place is a value inside a request.
type place struct {
	parent any // a map or a list
	name   string
	index  int
}

func places(value any, found []place) []place {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if found = append(found, place{v, name, 0}); name != "v" && name != "op" {
				found = places(v[name], found)
			}
		}
	case []any:
		for i := range v {
			found = places(v[i], append(found, place{v, "", i}))
		}
	}
	return found
}

func (p place) get() any {
	if list, is := p.parent.([]any); is {
		return list[p.index]
	}
	return p.parent.(map[string]any)[p.name]
}

func (p place) put(value any) {
	if list, is := p.parent.([]any); is {
		list[p.index] = value
	} else {
		p.parent.(map[string]any)[p.name] = value
	}
}

func (p place) change(m *mutator) {
	if addresses[p.name] { // memory of the caller, who has none here
		return
	}
	switch object, is := p.get().(map[string]any); m.IntN(4) {
	case 0:
		if parent, is := p.parent.(map[string]any); is {
			delete(parent, p.name)
			return
		}
	case 1:
		p.put(m.like(p.get()))
		return
	case 2:
		if name := m.names[m.IntN(len(m.names))]; is && !addresses[name] {
			object[name] = copied(m.fields[name][m.IntN(len(m.fields[name]))])
			return
		}
	}
	if values := m.fields[p.name]; len(values) > 0 && m.IntN(3) == 0 {
		p.put(copied(values[m.IntN(len(values))]))
		return
	}
	p.put(json.RawMessage(literals[m.IntN(len(literals))]))
}

// like is another value of the same type.
func (m *mutator) like(value any) any {
	switch v := value.(type) {
	case json.Number:
		f, _ := v.Float64()
		f = []float64{f + 1, f - 1, -f, f * 2, f * 1000, f * 1e6, f / 3, f / 1e6, math.Floor(f / 2), f * 1e18}[m.IntN(10)]
		if text, err := json.Marshal(f); err == nil {
			return json.Number(text)
		}
	case string:
		if inner, err := unpacked(v); err == nil {
			return packed(m.trace(inner))
		}
		return []string{v + "x", strings.ToUpper(v), strings.Repeat(v, 1+100_000/(1+len(v))), v[:len(v)/2]}[m.IntN(4)]
	case []any:
		return [][]any{v[:len(v)/2], {}, append(slices.Clone(v), v...), slices.Repeat(v, 1+1000/(1+len(v))), append(slices.Clone(v), nil)}[m.IntN(5)]
	case bool:
		return !v
	}
	return value
}

// trace changes what a trace holds.
func (m *mutator) trace(text []byte) []byte {
	var trace any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&trace) != nil {
		return m.bytes(text)
	}
	m.changes(&trace)
	return m.bytes(written(trace))
}

// addresses are the fields that hold addresses of buffers: any number there is believed.
var addresses = map[string]bool{"address": true, "indices": true, "valid": true, "offsets": true, "data": true, "buffers": true, "arrow": true}

func holdsAddresses(text []byte) bool {
	return bytes.Contains(text, []byte(`"buffers"`)) || bytes.Contains(text, []byte(`"arrow"`))
}

func copied(value any) any {
	switch v := value.(type) {
	case map[string]any:
		to := make(map[string]any, len(v))
		for name, inner := range v {
			to[name] = copied(inner)
		}
		return to
	case []any:
		to := make([]any, len(v))
		for i := range v {
			to[i] = copied(v[i])
		}
		return to
	}
	return value
}

// written is JSON in which literals stand as they are.
func written(value any) (text []byte) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			text = slices.Concat(text, []byte{','}, written(name), []byte{':'}, written(v[name]))
		}
		return slices.Concat([]byte{'{'}, text[min(1, len(text)):], []byte{'}'})
	case []any:
		for _, inner := range v {
			text = slices.Concat(text, []byte{','}, written(inner))
		}
		return slices.Concat([]byte{'['}, text[min(1, len(text)):], []byte{']'})
	case json.RawMessage:
		return v
	}
	text, _ = json.Marshal(value)
	return text
}

// unpacked is the text of a trace inside a request.
func unpacked(base string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(base)
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func packed(text []byte) string {
	var raw bytes.Buffer
	w := gzip.NewWriter(&raw)
	_, _ = w.Write(text)
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(raw.Bytes())
}
