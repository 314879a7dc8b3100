package main

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// recorder writes down the operations of one iteration in the order of transformers' eager code, as a trace would.
type recorder struct {
	operations []kernel.Operation
	dtype      kernel.DType
	item       float64 // bytes of an element
	train      bool
	accumulate bool      // NeuSight never sets gradients to zero
	times      int64     // layers that the next operations stand for
	kept       []float64 // bytes of tensors that backward needs, and that thus take new memory
	parameters float64
	tensors    int64 // of parameters
}

func (r *recorder) add(o kernel.Operation) {
	if o.Phase == kernel.Backward && !r.train {
		return
	}
	o.DType, o.Times = r.dtype, float64(r.times)
	r.operations = append(r.operations, o)
}

// move is a memory-bound operation over elements, read and written so many bytes an element.
func (r *recorder) move(name string, kind kernel.Kind, phase kernel.Phase, elements, read, written float64, kernels int64) {
	r.add(kernel.Operation{Name: name, Kind: kind, Phase: phase, Read: read * elements, Written: written * elements, Kernels: kernels})
}

// forward and backward are elementwise operations that read and write whole tensors, so many kernels in all.
func (r *recorder) forward(name string, elements float64, read, written float64, kernels int64) {
	r.move(name, kernel.Elementwise, kernel.Forward, elements, read*r.item, written*r.item, kernels)
}

func (r *recorder) backward(name string, elements float64, read, written float64, kernels int64) {
	r.move(name, kernel.Elementwise, kernel.Backward, elements, read*r.item, written*r.item, kernels)
}

// copied is a tensor in another layout, with the same for its gradient.
func (r *recorder) copied(name string, elements float64) {
	r.move(name, kernel.Copy, kernel.Forward, elements, r.item, r.item, 1)
	r.move(name, kernel.Copy, kernel.Backward, elements, r.item, r.item, 1)
}

// keep is a tensor that lives until backward: elements of so many bytes, count times a layer.
func (r *recorder) keep(elements, bytes float64, count int) {
	for range int64(count) * r.times {
		r.kept = append(r.kept, elements*bytes)
	}
}

func (r *recorder) gemm(name string, phase kernel.Phase, batch, m, n, k int64) {
	r.add(kernel.Operation{Name: name, Kind: kernel.GEMM, Phase: phase, Batch: batch, M: m, N: n, K: k,
		Read: r.item * float64(batch*(m*k+k*n)), Written: r.item * float64(batch*m*n)})
}

// linear is x (m×k) by a weight to m×n, with its bias and the gradients of all three.
func (r *recorder) linear(name string, m, n, k int64, bias bool) {
	r.gemm(name, kernel.Forward, 1, m, n, k)
	r.gemm(name+" input gradient", kernel.Backward, 1, m, k, n)
	r.gemm(name+" weight gradient", kernel.Backward, 1, n, k, m)
	r.parameter(name, float64(n)*float64(k))
	if bias {
		r.move(name+" bias gradient", kernel.Reduction, kernel.Backward, float64(m*n), r.item, 0, 1)
		r.parameter(name+" bias", float64(n))
	}
}

// parameter is a weight, whose gradient may be added to the one that is there.
func (r *recorder) parameter(name string, elements float64) {
	r.parameters += elements * float64(r.times)
	r.tensors += r.times
	if r.accumulate {
		r.backward("accumulate gradient of "+name, elements, 2, 1, 1)
	}
}

// product is a batched one, with both its gradients.
func (r *recorder) product(name string, batch, m, n, k int64) {
	r.gemm(name, kernel.Forward, batch, m, n, k)
	r.gemm(name+" left gradient", kernel.Backward, batch, m, k, n)
	r.gemm(name+" right gradient", kernel.Backward, batch, k, n, m)
}

// softmax's gradient is two kernels: a product, and the rest (aten/src/ATen/native/cuda/SoftMax.cu, softmax_backward_cuda_out).
func (r *recorder) softmax(rows, row int64) {
	bytes := r.item * float64(rows) * float64(row)
	r.add(kernel.Operation{Name: "softmax", Kind: kernel.Softmax, Phase: kernel.Forward, Read: bytes, Written: bytes, Row: row})
	r.backward("softmax gradient, product", float64(rows)*float64(row), 2, 1, 1)
	r.backward("softmax gradient", float64(rows)*float64(row), 2, 1, 1)
}

// dropout writes a mask of a byte, which its gradient reads.
func (r *recorder) dropout(elements float64) {
	if !r.train {
		return
	}
	r.move("dropout", kernel.Elementwise, kernel.Forward, elements, r.item, r.item+1, 1)
	r.move("dropout gradient", kernel.Elementwise, kernel.Backward, elements, 1+r.item, r.item, 1)
	r.keep(elements, 1, 1)
}

func (r *recorder) norm(tokens, width float64) {
	r.move("layer norm", kernel.Normalization, kernel.Forward, tokens*width, r.item, r.item, 1)
	r.move("layer norm gradient", kernel.NormBackward, kernel.Backward, tokens*width, 4*r.item, r.item, 3)
	r.parameter("scale", width)
	r.parameter("shift", width)
}

// embedding reads rows of a table; its gradient clears the table and adds to it.
func (r *recorder) embedding(tokens, width, entries float64) {
	r.move("embedding", kernel.Gather, kernel.Forward, tokens*width, r.item, r.item, 1)
	r.move("embedding gradient", kernel.Gather, kernel.Backward, tokens*width, 2*r.item, r.item, 2)
	r.move("embedding gradient, cleared", kernel.Elementwise, kernel.Backward, entries*width, 0, r.item, 1)
	r.parameter("embedding", entries*width)
}

// reserved is the bytes that a caching allocator which starts empty asks cudaMalloc for, for what is kept, and in how many calls: one from 10 MiB on,
// segments of 20 and 2 MiB below.
func (r *recorder) reserved() (bytes, calls float64) {
	const mib = 1 << 20
	middle, small := 0.0, 0.0
	for _, size := range r.kept {
		switch {
		case size >= 10*mib:
			calls++
			bytes += size
		case size > mib:
			middle += size
		default:
			small += size
		}
	}
	large, little := math.Ceil(middle/(20*mib)), math.Ceil(small/(2*mib))
	return bytes + mib*(20*large+2*little), calls + large + little
}
