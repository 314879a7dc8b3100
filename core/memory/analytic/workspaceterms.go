package analytic

// What libraries and kernels take temporarily, besides what they are asked for.

const cublas = "cuBLAS workspace"

// workspaces are those of cuBLAS that PyTorch before 2.15 keeps: one for the thread of the forward pass, one for autograd's.
func (t *tracker) workspaces() {
	if t.libraries.Kept {
		for range 2 {
			t.allocate(cublas, of(dim{"workspace", int64(t.libraries.CuBLASBytes)}), bools, workspaces, t.libraries.Source)
		}
	}
}

// takeWorkspace takes the workspace of one matrix product; with a bias it is cuBLASLt's.
func (t *tracker) takeWorkspace(bias bool) {
	bytes := t.libraries.CuBLASBytes
	if bias {
		bytes = t.libraries.CuBLASLtBytes
	}
	if bytes > 0 && !t.libraries.Kept {
		t.release(t.allocate(cublas, of(dim{"workspace", int64(bytes)}), bools, workspaces, t.libraries.Source))
	}
}

// takesWorkspace says that a node's backward multiplies matrices, without a bias.
func (t *tracker) takesWorkspace(n *node) {
	if n != nil && t.libraries.CuBLASBytes > 0 && !t.libraries.Kept {
		s := of(dim{"workspace", int64(t.libraries.CuBLASBytes)})
		n.addScratch(edge{row: t.rowFor(cublas, scratch, s, bools, t.libraries.Source), part: workspaces})
	}
}

// takesColumnSum says that a node's backward sums up rows, as for the gradient of a bias. Several blocks of threads share many
// rows, and their partial sums take a buffer.
func (t *tracker) takesColumnSum(n *node, rows, columns int64) {
	if n == nil {
		return
	}
	if bytes := t.sums.ColumnSum(rows, columns); bytes > 0 {
		t.takesScratch(n, "partial sums", of(dim{"partial sums", int64(bytes / 4)}), "gpu_reduce_kernel, aten/src/ATen/native/cuda/Reduce.cuh")
	}
}
