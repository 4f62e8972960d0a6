"""The recipe of magmagraph for Spack: packages/py_magmagraph/package.py of a repository."""

from spack.package import *


class PyMagmagraph(PythonPackage):
    """Symbolic tensor graphs, compiled by visible passes and run on NumPy, CUDA and MPI."""

    pypi = "magmagraph/magmagraph-0.1.0.tar.gz"

    license("Apache-2.0")

    # The checksum is that of the sdist of the release.
    version("0.1.0", sha256="0" * 64)

    variant("mpi", default=False, description="Train on many processes")
    variant("cuda", default=False, description="Run on NVIDIA GPUs")
    variant("tune", default=False, description="Search hyperparameters")

    # Kernels are compiled when they are first called.
    depends_on("c", type=("build", "run"))
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-hatchling@1.24:", type="build")
    depends_on("py-ml-dtypes@0.5:", type=("build", "run"))
    depends_on("py-networkx@3.2:", type=("build", "run"))
    depends_on("py-numpy@2:", type=("build", "run"))
    depends_on("py-pooch@1.8:", type=("build", "run"))
    depends_on("py-rich@13.7:", type=("build", "run"))
    depends_on("py-safetensors@0.8:", type=("build", "run"))
    depends_on("py-scipy@1.13:", type=("build", "run"))
    depends_on("py-mpi4py@4:", when="+mpi", type=("build", "run"))
    depends_on("py-cupy@14:", when="+cuda", type=("build", "run"))
    depends_on("py-optuna@4:", when="+tune", type=("build", "run"))
    depends_on("py-matplotlib@3.8:", when="+tune", type=("build", "run"))

    def setup_run_environment(self, env):
        """Let kernels be compiled by the compiler that Spack chose."""
        env.set("MAGMAGRAPH_CC", self.compiler.cc)
