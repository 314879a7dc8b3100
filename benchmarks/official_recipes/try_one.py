import sys, time, tempfile, importlib
import recipe_runs as r
for name in sys.argv[1:]:
    for rec in importlib.import_module(name).RECIPES:
        with tempfile.TemporaryDirectory() as d:
            t0=time.time(); a=r.train_plainly(rec,d); print(rec.name,"plain",a.losses,a.refused[:300],round(time.time()-t0,1),flush=True)
            t0=time.time(); b=r.train_with_plan(rec,d); print("plan",b.losses,b.refused[:300],round(time.time()-t0,1),flush=True)
            t0=time.time(); c=r.train_with_plan(rec,d,memory_runs_out=True); print("oom",c.losses,c.refused[:600],c.splits,r.distance(b,c),round(time.time()-t0,1),flush=True)
        if rec.untrained:
          with tempfile.TemporaryDirectory() as d:
            b=r.train_with_plan(rec,d,frozen=True); c=r.train_with_plan(rec,d,memory_runs_out=True,frozen=True); print("frozen",c.losses,c.refused[:600],c.splits,r.distance(b,c),flush=True)
