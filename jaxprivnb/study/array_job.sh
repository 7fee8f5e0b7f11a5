#!/bin/bash
# A study as an array job. Any task may die and be requeued; all of them share one folder.
#
#   SLURM   sbatch --array=1-100 array_job.sh mine.toml /shared/mine
#   PBS     qsub -J 1-100 -v SPEC=mine.toml,OUT=/shared/mine,PARTS=100 array_job.sh
#
# When the queue is empty, `jaxprivnb study --status /shared/mine` says whether anything is missing;
# what is missing is computed by submitting the same job again.
#
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=04:00:00
#SBATCH --requeue
#PBS -l select=1:ncpus=4:mem=8gb
#PBS -l walltime=04:00:00
#PBS -r y
set -eu
if [ -n "${PBS_O_WORKDIR:-}" ]; then cd "$PBS_O_WORKDIR"; fi

spec=${1:-${SPEC:?"give the spec"}}
out=${2:-${OUT:?"give the folder"}}
task=${SLURM_ARRAY_TASK_ID:-${PBS_ARRAY_INDEX:?"submit this as an array job"}}
part=$((task - ${SLURM_ARRAY_TASK_MIN:-1} + 1))
parts=${SLURM_ARRAY_TASK_COUNT:-${PARTS:?"say how many tasks there are"}}

# exec: the queue's signals reach the study, which keeps what is stored and stops.
exec jaxprivnb study "$spec" --out "$out" --part "$part/$parts" --quiet \
  --workers "${SLURM_CPUS_PER_TASK:-${NCPUS:-1}}" --compilation-cache "$out/programs"
