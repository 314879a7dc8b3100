package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// tables are the operator measurements of one card.
type tables struct{ folder, card, convolutionsOf string }

type row struct {
	operation kernel.Operation
	seconds   float64
}

// read gives the rows of one operator's file, by its latency and the numbers of the named columns.
func (t tables) read(operator, card string, of func(values []float64) kernel.Operation, columns ...string) ([]row, error) {
	path := filepath.Join(t.folder, operator, "p2.1.0", card+".csv")
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading measurements: %w", err)
	}
	defer file.Close()
	records, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(records) < 2 {
		return nil, fmt.Errorf("reading %s: no lines below the header", path)
	}
	values := make([][]float64, len(records)-1)
	for _, column := range append(columns, "Latency") {
		at := slices.Index(records[0], column)
		if at < 0 {
			return nil, fmt.Errorf("reading %s: no column %s", path, column)
		}
		for i, record := range records[1:] {
			value, err := strconv.ParseFloat(record[at], 64)
			if err != nil {
				return nil, fmt.Errorf("reading %s, line %d: %w", path, i+2, err)
			}
			values[i] = append(values[i], value)
		}
	}
	rows := make([]row, len(values))
	for i, v := range values {
		rows[i] = row{of(v), v[len(columns)] / 1e3}
	}
	return rows, nil
}

// products are float32 products. In these files N is what is summed over and K the columns of the result.
func (t tables) products(operator string) ([]row, error) {
	return t.read(operator, t.card, func(v []float64) kernel.Operation {
		return kernel.Operation{Kind: kernel.GEMM, DType: kernel.Float32, Batch: int64(v[0]), M: int64(v[1]), K: int64(v[2]), N: int64(v[3])}
	}, "B", "M", "N", "K")
}

// moved are operators that read and write float32 tensors of B rows of H elements.
func (t tables) moved(operator string, kind kernel.Kind, tensors float64) ([]row, error) {
	return t.read(operator, t.card, func(v []float64) kernel.Operation {
		bytes := 4 * v[0] * v[1]
		return kernel.Operation{Kind: kind, DType: kernel.Float32, Read: (tensors - 1) * bytes, Written: bytes, Row: int64(v[1])}
	}, "B", "H")
}

// convolutions are square two-dimensional ones, as the products they amount to.
func (t tables) convolutions() ([]row, error) {
	return t.read("conv", t.convolutionsOf, func(v []float64) kernel.Operation {
		batch, in, out, width, size, stride, padding := v[0], v[1], v[2], v[3], v[4], v[5], v[6]
		side := float64(int((size+2*padding-width)/stride)) + 1
		return kernel.Operation{Kind: kernel.GEMM, DType: kernel.Float32, Batch: 1, M: int64(batch * side * side), N: int64(out), K: int64(in * width * width)}
	}, "B", "Input_Channel", "Output_Channel", "Kernel_Szie", "Input_Size", "Stride", "Padding")
}
