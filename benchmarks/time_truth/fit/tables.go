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

// row is one measured operator.
type row struct {
	operation kernel.Operation
	seconds   float64
}

// read gives the named columns of one operator's file as numbers, the latency in seconds first.
func (t tables) read(operator, card string, columns ...string) ([][]float64, error) {
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
	rows := make([][]float64, len(records)-1)
	for _, column := range append([]string{"Latency"}, columns...) {
		at := slices.Index(records[0], column)
		if at < 0 {
			return nil, fmt.Errorf("reading %s: no column %s", path, column)
		}
		for i, record := range records[1:] {
			value, err := strconv.ParseFloat(record[at], 64)
			if err != nil {
				return nil, fmt.Errorf("reading %s, line %d: %w", path, i+2, err)
			}
			rows[i] = append(rows[i], value)
		}
	}
	for _, values := range rows {
		values[0] /= 1e3
	}
	return rows, nil
}

// products are float32 products. In these files N is what is summed over and K the columns of the result.
func (t tables) products(operator string) ([]row, error) {
	values, err := t.read(operator, t.card, "B", "M", "N", "K")
	if err != nil {
		return nil, err
	}
	rows := make([]row, len(values))
	for i, v := range values {
		rows[i] = row{kernel.Operation{Kind: kernel.GEMM, DType: kernel.Float32, Batch: int64(v[1]), M: int64(v[2]), K: int64(v[3]), N: int64(v[4])}, v[0]}
	}
	return rows, nil
}

// moved are operators that read and write float32 tensors of B rows of H elements.
func (t tables) moved(operator string, kind kernel.Kind, tensors float64) ([]row, error) {
	values, err := t.read(operator, t.card, "B", "H")
	if err != nil {
		return nil, err
	}
	rows := make([]row, len(values))
	for i, v := range values {
		bytes := 4 * v[1] * v[2]
		rows[i] = row{kernel.Operation{Kind: kind, DType: kernel.Float32, Read: (tensors - 1) * bytes, Written: bytes, Row: int64(v[2])}, v[0]}
	}
	return rows, nil
}

// convolutions are square two-dimensional ones, as the products they amount to.
func (t tables) convolutions() ([]row, error) {
	values, err := t.read("conv", t.convolutionsOf, "B", "Input_Channel", "Output_Channel", "Kernel_Szie", "Input_Size", "Stride", "Padding")
	if err != nil {
		return nil, err
	}
	rows := make([]row, len(values))
	for i, v := range values {
		batch, in, out, width, size, stride, padding := v[1], v[2], v[3], v[4], v[5], v[6], v[7]
		side := float64(int((size+2*padding-width)/stride)) + 1
		rows[i] = row{kernel.Operation{Kind: kernel.GEMM, DType: kernel.Float32, Batch: 1, M: int64(batch * side * side), N: int64(out), K: int64(in * width * width)}, v[0]}
	}
	return rows, nil
}
