# SPDX-License-Identifier: Apache-2.0
from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage


class Aerie(CMakePackage, CudaPackage):
    """MPI suite that trains EAGLE-3 draft models for large language models on Slurm clusters."""

    license("Apache-2.0")

    version("main")

    variant("tests", default=False, description="Build the tests, and fault points with them")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")

    depends_on("mpi@3:")
    depends_on("hdf5@1.10: +mpi")
    depends_on("cli11@2.1.2:")
    depends_on("tomlplusplus@3.3:")
    depends_on("nlohmann-json@3.11:")
    depends_on("fmt@9:")
    depends_on("xxhash@0.8.1:")
    depends_on("openssl@3:")
    depends_on("googletest@1.12:", when="+tests")

    # LibTorch has no package of its own; py-torch carries it.
    depends_on("py-torch@2.11.0")
    depends_on("py-torch@2.11.0 +cuda+nccl", when="+cuda")
    depends_on("nccl", when="+cuda")

    # aerie-prepare; nothing else of Python runs.
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-tokenizers", type="run")
    depends_on("py-jinja2", type="run")
    depends_on("py-numpy", type="run")
    depends_on("py-h5py", type="run")
    depends_on("py-xxhash", type="run")

    conflicts("cuda_arch=none", when="+cuda", msg="choose cuda_arch, e.g. 90")

    generator("ninja")

    def cmake_args(self):
        torch = join_path(self.spec["py-torch"].prefix, self.spec["python"].package.platlib, "torch")
        args = [
            self.define("AERIE_LIBTORCH_ROOT", torch),
            self.define_from_variant("AERIE_CUDA", "cuda"),
            self.define_from_variant("AERIE_TESTS", "tests"),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("NCCL_ROOT", self.spec["nccl"].prefix))
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", ";".join(self.spec.variants["cuda_arch"].value)))
        return args
