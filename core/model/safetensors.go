package model

import (
	"encoding/binary"
	"io"
	"math/bits"
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// maxHeaderBytes is the limit of the reference reader. https://github.com/huggingface/safetensors
const maxHeaderBytes = 100 << 20

// dtypeBits is the width of one element of every dtype of the format.
var dtypeBits = map[string]uint64{
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16,
	"F16": 16, "BF16": 16,
	"I32": 32, "U32": 32, "F32": 32, "C64": 64, "I64": 64, "U64": 64, "F64": 64,
}

type tensorInfo struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets []uint64 `json:"data_offsets"` // begin and end within the data
}

// weights sums the parameters that weight files hold.
type weights struct {
	elements uint64
	factored uint64 // elements of Adafactor's second moment
}

// readHeader adds up the parameters in a safetensors file of the given size from its header: 8
// bytes of length, then JSON. Integer tensors and the running statistics of batch norms are
// buffers.
func readHeader(r io.Reader, fileSize int64) (weights, error) {
	var length uint64
	if err := binary.Read(r, binary.LittleEndian, &length); err != nil {
		return weights{}, corrupt("it ends within the length of its header")
	}
	if fileSize < 8 || length > uint64(fileSize)-8 || length > maxHeaderBytes {
		return weights{}, corrupt("its header claims %d bytes, the file has %d and the limit is %d",
			length, fileSize, maxHeaderBytes)
	}
	raw := make([]byte, length)
	if _, err := io.ReadFull(r, raw); err != nil {
		return weights{}, corrupt("it ends within its header")
	}
	var tensors map[string]json.RawMessage
	if err := json.Unmarshal(raw, &tensors); err != nil {
		return weights{}, corrupt("its header is not a JSON object: %v", err)
	}
	var sum weights
	for name, entry := range tensors {
		if name == "__metadata__" {
			continue
		}
		var t tensorInfo
		if err := json.Unmarshal(entry, &t); err != nil {
			return weights{}, corrupt("the entry of %s is invalid: %v", fault.Shorten(name), err)
		}
		if err := sum.add(name, t, uint64(fileSize)-8-length); err != nil {
			return weights{}, err
		}
	}
	return sum, nil
}

func (w *weights) add(name string, t tensorInfo, dataBytes uint64) error {
	bits, ok := dtypeBits[t.DType]
	if !ok {
		return corrupt("%s has the unknown dtype %q", fault.Shorten(name), fault.Shorten(t.DType))
	}
	elements, fits := product(t.Shape)
	if !fits || elements > maxElements {
		return corrupt("%s has the shape %v", fault.Shorten(name), t.Shape)
	}
	if len(t.Offsets) != 2 || t.Offsets[0] > t.Offsets[1] || t.Offsets[1] > dataBytes ||
		t.Offsets[1]-t.Offsets[0] != elements*bits/8 {
		return corrupt("%s of %d elements of %s lies at %v in %d bytes of data",
			fault.Shorten(name), elements, t.DType, t.Offsets, dataBytes)
	}
	if (t.DType == "U8" || t.DType == "I8") && len(t.Shape) > 1 {
		return fault.New(fault.Unsupported, "pass the live module",
			"%s is stored as %s: weights are quantized", fault.Shorten(name), t.DType)
	}
	if isParameter(name, t.DType) {
		w.elements += elements // both stay under file size x 8
		w.factored += factoredState(elements, t.Shape)
	}
	return nil
}

func isParameter(name, dtype string) bool {
	floating := strings.HasPrefix(dtype, "F") || strings.HasPrefix(dtype, "C") || dtype == "BF16"
	return floating && !strings.HasSuffix(name, ".running_mean") &&
		!strings.HasSuffix(name, ".running_var")
}

func corrupt(format string, args ...any) error {
	return fault.New(fault.Corrupt, "save or download the weights again",
		"not a valid safetensors file: "+format, args...)
}

// factoredState is the size of Adafactor's second moment for one tensor: the mean over the last
// dimension and the mean over the one before it (transformers.optimization.Adafactor); a vector is
// kept whole.
func factoredState(elements uint64, dims []int64) uint64 {
	n := len(dims)
	if n < 2 || elements == 0 {
		return elements
	}
	outer, _ := product(dims[:n-2]) // not above elements, hence no overflow
	return outer * (uint64(dims[n-2]) + uint64(dims[n-1]))
}

// product multiplies sizes; false when it leaves 64 bits.
func product(dims []int64) (uint64, bool) {
	n := uint64(1)
	for _, d := range dims {
		high, low := bits.Mul64(n, uint64(d))
		if d < 0 || high != 0 {
			return 0, false
		}
		n = low
	}
	return n, true
}
