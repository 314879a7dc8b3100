package analytic

import "github.com/asrconfig/asrconfig-go/core/timing/kernel"

// What the model's Python code does with tensors: makes them, gives them names, forgets them, and calls functions.

// fresh is a new tensor, made by the operation at work.
func (t *tracker) fresh(what string, s shape, d dtype, source string) value {
	at := t.allocate(what, s, d, temporaries, source)
	t.made += t.storages[at].bytes
	t.largestStorage = max(t.largestStorage, t.storages[at].bytes)
	return value{at: at, node: none, shape: s, kind: d}
}

// input is a tensor of the batch. The Trainer fetches the micro-batches of a step together and keeps them all.
func (t *tracker) input(what string, s shape, d dtype, source string) value {
	at := t.allocate(what, s, d, inputs, source)
	t.batch = append(t.batch, at)
	if others := t.accumulation - 1; others > 0 && t.accumulating {
		all := of(append([]dim{{"other micro-batches", others}}, s[:s.rank()]...)...)
		t.batch = append(t.batch, t.allocate(what, all, d, inputs, "Trainer.get_batch_samples"))
	}
	return value{at: at, node: none, shape: s, kind: d}
}

// drop ends a variable's hold on values.
func (t *tracker) drop(values ...value) {
	for _, v := range values {
		t.release(v.at)
	}
}

// then is "x = f(x)": the variable's old value goes once the new one is there.
func (t *tracker) then(old, made value) value {
	t.drop(old)
	return made
}

// same is another hold on a value, as of a function that gives back its argument.
func (t *tracker) same(v value) value {
	t.retain(v.at)
	return v
}

// as is a view of another shape.
func (v value) as(s shape) value {
	v.shape = s
	return v
}

// at names the part of the model that plays, for the rows of what it makes.
func (t *tracker) at(module string, play func()) {
	outer := t.module
	t.module = module
	play()
	t.module = outer
}

// call plays a function of the model's code; the variables that it holds go when it returns.
func (t *tracker) call(module string, play func()) {
	from := len(t.held)
	t.at(module, play)
	t.drop(t.held[from:]...)
	t.held = t.held[:from]
}

// hold keeps variables until the function at work returns.
func (t *tracker) hold(values ...value) { t.held = append(t.held, values...) }

// give keeps values that the model gives back, until the loss has been taken out.
func (t *tracker) give(values ...value) {
	for _, v := range values {
		t.result = append(t.result, cached{v.at, t.repeats})
	}
}

// endForward is what follows when the model returns: its variables go, autocast's context ends, accelerate makes a
// float32 copy of the logits (accelerate.utils.convert_outputs_to_fp32), and all but the loss is dropped.
func (t *tracker) endForward() {
	t.drop(t.held...)
	t.endAutocast(0)
	t.module = "head"
	if t.logits.kind == halves {
		t.drop(t.fresh("logits in float32", t.logits.shape, float32s, "accelerate.utils.convert_outputs_to_fp32"))
		t.copies(kernel.Elementwise, "logits in float32", float32s, t.logits.bytes())
	}
	t.drop(t.logits)
	t.releaseAll(t.result)
	t.held, t.result, t.logits = t.held[:0], t.result[:0], nothing
	t.highest.copyPending(&t.live)
}

// endAutocast empties the cache of what came later.
func (t *tracker) endAutocast(from int) {
	t.releaseAll(t.cache[from:])
	t.cache = t.cache[:from]
}

// releaseAll forgets what outlived its layer; with the last reference the copies go that it stands for.
func (t *tracker) releaseAll(all []cached) {
	for _, c := range all {
		s := t.storages[c.at]
		t.release(c.at)
		if s.refs == 1 {
			t.count(s.row, s.part, -(c.repeats-1)*s.bytes)
		}
	}
}
