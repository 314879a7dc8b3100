package model

import (
	"bytes"
	"math"
	"regexp"
	"strconv"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

const (
	maxConfigBytes = 4 << 20 // a published config.json takes 2 to 10 kB
	maxSize        = 1 << 20 // of one dimension: over four times the largest speech vocabulary
	maxLayers      = 4096    // of one stack of layers
	maxListed      = 64      // entries of a list such as conv_dim
)

// fields reads a transformers config. The first wrong value is kept in problems and names its key; that read, as every
// read of an absent key, gives the fallback, the default of the transformers config class.
type fields struct {
	problems *firstError
	path     string // "" or "encoder_config."
	values   map[string]json.RawMessage
}

// notJSON finds the numbers that Python writes and JSON does not know.
var notJSON = regexp.MustCompile(`"([^"\\]{1,100})"\s*:\s*(-?(?:NaN|Infinity))`)

func parseFields(raw []byte) (*fields, error) {
	const hint = "pass the JSON of config.json, or config.to_dict()"
	if len(raw) > maxConfigBytes {
		return nil, fault.New(fault.InvalidArgument, hint, "the config has %d bytes, the limit is %d", len(raw), maxConfigBytes)
	}
	f := &fields{problems: &firstError{}}
	if err := json.Unmarshal(raw, &f.values); err != nil {
		if found := notJSON.FindSubmatch(raw); found != nil {
			return nil, fault.New(fault.InvalidArgument, hint, "%s is %s; it must be a finite number", found[1], found[2])
		}
		return nil, fault.Wrap(err, fault.InvalidArgument, hint, "the config is not a JSON object")
	}
	if f.values == nil { // "null"
		return nil, fault.New(fault.InvalidArgument, hint, "the config is null")
	}
	return f, nil
}

func (f *fields) wrong(key, must string) {
	shown := bytes.TrimSpace(f.values[key])
	if len(shown) > 60 {
		shown = append(shown[:57:57], "..."...)
	}
	f.problems.keep(fault.New(fault.InvalidArgument, "correct the config, or pass the live module",
		"%s%s is %s; it must be %s", f.path, key, shown, must))
}

// require keeps a problem about two or more fields.
func (f *fields) require(holds bool, format string, args ...any) {
	if !holds {
		f.problems.keep(fault.New(fault.InvalidArgument, "correct the config: transformers refuses it too", format, args...))
	}
}

// given tells whether the key is there and not null.
func (f *fields) given(key string) bool {
	raw, there := f.values[key]
	return there && string(bytes.TrimSpace(raw)) != "null"
}

func (f *fields) whole(key string, fallback, low, high int) int {
	raw, there := f.values[key]
	if !there {
		return fallback
	}
	n, ok := parseWhole(raw, low, high)
	if !ok {
		f.wrong(key, "a whole number from "+strconv.Itoa(low)+" to "+strconv.Itoa(high))
		return fallback
	}
	return n
}

func parseWhole(raw []byte, low, high int) (int, bool) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(raw)))
	return n, err == nil && n >= low && n <= high
}

// size reads one dimension, 1..2^20.
func (f *fields) size(key string, fallback int) int { return f.whole(key, fallback, 1, maxSize) }

// layers reads the length of a stack, 0..4096.
func (f *fields) layers(key string, fallback int) int { return f.whole(key, fallback, 0, maxLayers) }

// optionalSize is size for a field that may be null, which gives 0.
func (f *fields) optionalSize(key string, fallback int) int {
	if _, there := f.values[key]; there && !f.given(key) {
		return 0
	}
	return f.size(key, fallback)
}

// aliased gives the name under which a value counts: transformers lets the common name win over the family's own.
func (f *fields) aliased(own, common string) string {
	if f.given(common) {
		return common
	}
	return own
}

func (f *fields) sizes(key string, fallback []int) []int {
	if _, there := f.values[key]; !there {
		return fallback
	}
	const must = "a list of 1 to 64 whole numbers from 1 to 1048576"
	var items []json.RawMessage
	if err := json.Unmarshal(f.values[key], &items); err != nil || len(items) == 0 || len(items) > maxListed {
		f.wrong(key, must)
		return fallback
	}
	out := make([]int, len(items))
	for i, item := range items {
		n, ok := parseWhole(item, 1, maxSize)
		if !ok {
			f.wrong(key, must)
			return fallback
		}
		out[i] = n
	}
	return out
}

func (f *fields) flag(key string, fallback bool) bool {
	raw, there := f.values[key]
	switch text := string(bytes.TrimSpace(raw)); {
	case !there:
		return fallback
	case text == "true" || text == "false":
		return text == "true"
	}
	f.wrong(key, "true or false")
	return fallback
}

func (f *fields) number(key string, fallback float64) float64 {
	raw, there := f.values[key]
	if !there {
		return fallback
	}
	x, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		f.wrong(key, "a finite number")
		return fallback
	}
	return x
}

// text reads a string; null gives "".
func (f *fields) text(key, fallback string) string {
	raw, there := f.values[key]
	if !there {
		return fallback
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		f.wrong(key, "a string")
		return fallback
	}
	return s
}

// nested reads an object inside the config; empty when absent or null.
func (f *fields) nested(key string) *fields {
	inner := &fields{problems: f.problems, path: f.path + key + "."}
	if f.given(key) {
		if err := json.Unmarshal(f.values[key], &inner.values); err != nil {
			f.wrong(key, "an object")
		}
	}
	return inner
}

// labels is num_labels as transformers derives it: the field, else the length of id2label, else 2.
func (f *fields) labels() int {
	switch {
	case f.given("num_labels"):
		return f.size("num_labels", 2)
	case f.given("id2label"):
		return max(1, min(maxSize, len(f.nested("id2label").values)))
	}
	return 2
}

// firstOf reads the first string of a list such as "architectures"; "" when absent, null or empty.
func (f *fields) firstOf(key string) string {
	var items []string
	if f.given(key) {
		if err := json.Unmarshal(f.values[key], &items); err != nil {
			f.wrong(key, "a list of strings")
		}
	}
	if len(items) == 0 {
		return ""
	}
	return items[0]
}
